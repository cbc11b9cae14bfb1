// The text side: llama.h behind the guard. What loads, tokenizes, decodes, samples or saves may throw, and is called here only.
#include "llava_guard.h"

#include "llama-cpp.h"

#include <stdexcept>
#include <string>

static thread_local std::string g_last_error;

int32_t llava_fail(llava_status status, const char * text) noexcept {
    try {
        g_last_error = text;
    } catch (...) {
        g_last_error.clear(); // no memory for the text: the status still tells
    }
    return status;
}

const char * llava_last_error(void) {
    return g_last_error.c_str();
}

int32_t llava_test_throw(int32_t what) {
    return guard([&]() -> int32_t {
        switch (what) {
            case 0: throw std::runtime_error("thrown on purpose");
            case 1: throw what;
            case 2: throw std::bad_alloc();
            default: return LLAVA_STATUS_OK;
        }
    });
}

int32_t llava_backend_init(void) {
    return guard([&]() -> int32_t {
        llama_backend_init();
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_model_load(const char * path, const llama_model_params * params, llama_model ** out) {
    return guard([&]() -> int32_t {
        REQUIRE(path && params && out);
        *out = llama_model_load_from_file(path, *params);
        return *out ? LLAVA_STATUS_OK : llava_fail(LLAVA_STATUS_FAILED, "llama_model_load_from_file returned no model");
    });
}

int32_t llava_context_new(llama_model * model, const llama_context_params * params, llama_context ** out) {
    return guard([&]() -> int32_t {
        REQUIRE(model && params && out);
        *out = llama_init_from_model(model, *params);
        return *out ? LLAVA_STATUS_OK : llava_fail(LLAVA_STATUS_FAILED, "llama_init_from_model returned no context");
    });
}

int32_t llava_batch_new(llama_context * ctx, llama_batch_ext ** out) {
    return guard([&]() -> int32_t {
        REQUIRE(ctx && out);
        *out = llama_batch_ext_init(ctx);
        return *out ? LLAVA_STATUS_OK : llava_fail(LLAVA_STATUS_FAILED, "llama_batch_ext_init returned no batch");
    });
}

int32_t llava_batch_fill(llama_batch_ext * batch, const llava_batch_entry * entries, size_t n_entries) {
    return guard([&]() -> int32_t {
        REQUIRE(batch && (entries || n_entries == 0) && n_entries <= INT32_MAX);
        llama_batch_ext_clear(batch);
        for (size_t i = 0; i < n_entries; i++) {
            const llava_batch_entry & entry = entries[i];
            const int32_t index = entry.row ? llama_batch_ext_add_embd(batch, entry.seq_id, { entry.row, 1, entry.n_embd })
                                            : llama_batch_ext_add_token(batch, entry.seq_id, entry.token);
            if (index < 0 || !llama_batch_ext_set_pos(batch, index, entry.pos) ||
                !llama_batch_ext_set_output_logits(batch, index, entry.logits)) {
                llama_batch_ext_clear(batch);
                return llava_fail(LLAVA_STATUS_FAILED, "llama_batch_ext refused an entry");
            }
        }
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_process(llama_context * ctx, llama_batch_ext * batch, int32_t * ret) {
    return guard([&]() -> int32_t {
        REQUIRE(ctx && batch && ret);
        *ret = llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, batch);
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_tokenize(const llama_vocab * vocab, const char * text, size_t len, llama_token * tokens, size_t n_max,
                       bool add_special, bool parse_special, int32_t * n_out) {
    return guard([&]() -> int32_t {
        REQUIRE(vocab && (text || len == 0) && (tokens || n_max == 0) && n_out);
        REQUIRE(len <= INT32_MAX && n_max <= INT32_MAX);
        *n_out = llama_tokenize(vocab, text ? text : "", (int32_t) len, tokens, (int32_t) n_max, add_special, parse_special);
        if (*n_out == INT32_MIN) {
            return llava_fail(LLAVA_STATUS_FAILED, "more tokens than an int32_t counts");
        }
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_token_to_piece(const llama_vocab * vocab, llama_token token, char * buf, size_t n_max, bool special, int32_t * n_out) {
    return guard([&]() -> int32_t {
        REQUIRE(vocab && (buf || n_max == 0) && n_max <= INT32_MAX && n_out);
        REQUIRE(token >= 0 && token < llama_vocab_n_tokens(vocab));
        *n_out = llama_token_to_piece(vocab, token, buf, (int32_t) n_max, 0, special);
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_grammar_new(const llama_vocab * vocab, const char * grammar, const char * root, llama_sampler ** out) {
    return guard([&]() -> int32_t {
        REQUIRE(vocab && grammar && root && out);
        *out = llama_sampler_init_grammar(vocab, grammar, root);
        return *out ? LLAVA_STATUS_OK : llava_fail(LLAVA_STATUS_FAILED, "the grammar does not parse");
    });
}

// the chain owns the sampler only once it has been added
static void add_sampler(llama_sampler * chain, llama_sampler * sampler) {
    llama_sampler_ptr owner(sampler);
    if (!owner) {
        throw std::runtime_error("a sampler could not be made");
    }
    llama_sampler_chain_add(chain, owner.get());
    owner.release();
}

int32_t llava_sampler_chain_new(const llava_sampler_params * params, llama_sampler ** out) {
    return guard([&]() -> int32_t {
        REQUIRE(params && out && params->n_vocab > 0);
        REQUIRE((params->biases || params->n_biases == 0) && params->n_biases <= INT32_MAX);
        llama_sampler_chain_params cparams = llama_sampler_chain_default_params();
        cparams.no_perf = true;
        llama_sampler_ptr chain(llama_sampler_chain_init(cparams));
        if (!chain) {
            return llava_fail(LLAVA_STATUS_FAILED, "llama_sampler_chain_init returned no chain");
        }
        if (params->n_biases > 0) {
            add_sampler(chain.get(), llama_sampler_init_logit_bias(params->n_vocab, (int32_t) params->n_biases, params->biases));
        }
        add_sampler(chain.get(), llama_sampler_init_penalties(params->n_vocab, params->penalty_last_n, params->penalty_repeat,
                                                              params->penalty_freq, params->penalty_present));
        add_sampler(chain.get(), llama_sampler_init_top_n_sigma(params->top_n_sigma));
        add_sampler(chain.get(), llama_sampler_init_top_k(params->top_k));
        add_sampler(chain.get(), llama_sampler_init_typical(params->typ_p, 0));
        add_sampler(chain.get(), llama_sampler_init_top_p(params->top_p, 0));
        add_sampler(chain.get(), llama_sampler_init_min_p(params->min_p, 0));
        add_sampler(chain.get(), llama_sampler_init_temp_ext(params->temp, 0.0f, 1.0f));
        add_sampler(chain.get(), llama_sampler_init_dist(params->seed));
        *out = chain.release();
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_sampler_reset(llama_sampler * sampler) {
    return guard([&]() -> int32_t {
        REQUIRE(sampler);
        llama_sampler_reset(sampler);
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_sampler_apply(llama_sampler * sampler, llama_token_data_array * candidates) {
    return guard([&]() -> int32_t {
        REQUIRE(sampler && candidates && candidates->data && candidates->size > 0);
        llama_sampler_apply(sampler, candidates);
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_sampler_accept(llama_sampler * sampler, llama_token token) {
    return guard([&]() -> int32_t {
        REQUIRE(sampler && token >= 0);
        llama_sampler_accept(sampler, token);
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_memory_clear(llama_context * ctx) {
    return guard([&]() -> int32_t {
        REQUIRE(ctx);
        llama_memory_t mem = llama_get_memory(ctx);
        if (mem) { // a model without memory has nothing to forget
            llama_memory_clear(mem, true);
        }
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_memory_seq_rm(llama_context * ctx, llama_seq_id seq_id, llama_pos p0, llama_pos p1, bool * removed) {
    return guard([&]() -> int32_t {
        REQUIRE(ctx && removed);
        REQUIRE(seq_id >= 0 && (uint32_t) seq_id < llama_n_seq_max(ctx));
        llama_memory_t mem = llama_get_memory(ctx);
        REQUIRE(mem);
        *removed = llama_memory_seq_rm(mem, seq_id, p0, p1);
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_state_seq_size(llama_context * ctx, llama_seq_id seq_id, size_t * size) {
    return guard([&]() -> int32_t {
        REQUIRE(ctx && size && seq_id >= 0 && (uint32_t) seq_id < llama_n_seq_max(ctx));
        *size = llama_state_seq_get_size(ctx, seq_id);
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_state_seq_get(llama_context * ctx, llama_seq_id seq_id, uint8_t * dst, size_t size, size_t * written) {
    return guard([&]() -> int32_t {
        REQUIRE(ctx && dst && written && seq_id >= 0 && (uint32_t) seq_id < llama_n_seq_max(ctx));
        *written = llama_state_seq_get_data(ctx, dst, size, seq_id);
        return *written ? LLAVA_STATUS_OK : llava_fail(LLAVA_STATUS_FAILED, "llama_state_seq_get_data wrote nothing");
    });
}

int32_t llava_state_seq_set(llama_context * ctx, llama_seq_id seq_id, const uint8_t * src, size_t size, size_t * read) {
    return guard([&]() -> int32_t {
        REQUIRE(ctx && src && read && seq_id >= 0 && (uint32_t) seq_id < llama_n_seq_max(ctx));
        *read = llama_state_seq_set_data(ctx, src, size, seq_id);
        return *read ? LLAVA_STATUS_OK : llava_fail(LLAVA_STATUS_FAILED, "llama_state_seq_set_data read nothing");
    });
}

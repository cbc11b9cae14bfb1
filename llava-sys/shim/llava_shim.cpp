// The shim proper. It includes mtmd.cpp, which is the only way to see the preprocessed pixels
// (mtmd_image_tokens::batch_f32) and to build the chunks of one picture at its place in a prompt without patching upstream.
#include "mtmd.cpp"

#include "llava_clip.h"
#include "llava_guard.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <vector>

//
// the class token of LLaVA towers
//

// models/llava.cpp is compiled with ggml_concat renamed to llava_ggml_concat. It appends the class token after the patches,
// while positions and the row selection assume that it comes first (llama.cpp#25814).
static thread_local bool g_class_token_first = false;

struct class_token_scope {
    const bool previous;
    explicit class_token_scope(bool first) : previous(g_class_token_first) { g_class_token_first = first; }
    ~class_token_scope() { g_class_token_first = previous; }
    class_token_scope(const class_token_scope &) = delete;
    class_token_scope & operator=(const class_token_scope &) = delete;
};

extern "C" ggml_tensor * llava_ggml_concat(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b, int dim) {
    if (g_class_token_first && dim == 1 && strcmp(ggml_get_name(b), TN_CLASS_EMBD) == 0) {
        // the class embedding is stored as one row of n_embd
        return ggml_concat(ctx, b, a, dim);
    }
    return ggml_concat(ctx, a, b, dim);
}

//
// logs and threads
//

#ifdef LLAVA_PARITY
#include "mtmd-helper.h"
#endif

static void silent_log(ggml_log_level, const char *, void *) {}

void llava_log_set(ggml_log_callback callback, void * user_data) {
    ggml_log_callback target = callback ? callback : silent_log;
    llama_log_set(target, user_data); // sets ggml's too
    mtmd_log_set(target, user_data);
#ifdef LLAVA_PARITY
    mtmd_helper_log_set(target, user_data);
#endif
}

struct llava_threadpool {
    ggml_threadpool * pool = nullptr;
    int32_t           n_threads = 0;

    static ggml_backend_reg_t cpu_reg() {
        ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        return dev ? ggml_backend_dev_backend_reg(dev) : nullptr;
    }

    ~llava_threadpool() {
        typedef void (*free_t)(ggml_threadpool *);
        auto fn = (free_t) ggml_backend_reg_get_proc_address(cpu_reg(), "ggml_threadpool_free");
        if (pool && fn) {
            fn(pool);
        }
    }
};

int32_t llava_threadpool_new(int32_t n_threads, llava_threadpool ** out) {
    return guard([&]() -> int32_t {
        REQUIRE(out && n_threads > 0 && n_threads <= GGML_MAX_N_THREADS);
        typedef ggml_threadpool * (*new_t)(ggml_threadpool_params *);
        ggml_backend_reg_t reg = llava_threadpool::cpu_reg();
        auto fn = reg ? (new_t) ggml_backend_reg_get_proc_address(reg, "ggml_threadpool_new") : nullptr;
        if (!fn) {
            return llava_fail(LLAVA_STATUS_FAILED, "no CPU back-end offers a threadpool");
        }
        std::unique_ptr<llava_threadpool> result(new llava_threadpool);
        ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
        result->pool = fn(&params);
        result->n_threads = n_threads;
        if (!result->pool) {
            return llava_fail(LLAVA_STATUS_FAILED, "ggml_threadpool_new returned no pool");
        }
        *out = result.release();
        return LLAVA_STATUS_OK;
    });
}

void llava_threadpool_free(llava_threadpool * pool) {
    guard([&]() -> int32_t {
        delete pool;
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_threadpool_n_threads(const llava_threadpool * pool) {
    return pool ? pool->n_threads : 0;
}

int32_t llava_context_set_threadpool(llama_context * ctx, llava_threadpool * pool) {
    return guard([&]() -> int32_t {
        REQUIRE(ctx);
        if (pool) {
            llama_attach_threadpool(ctx, pool->pool, pool->pool);
        } else {
            llama_detach_threadpool(ctx);
        }
        return LLAVA_STATUS_OK;
    });
}

//
// projector
//

struct llava_projector {
    mtmd_context *     ctx  = nullptr;
    llava_threadpool * pool = nullptr;

    bool class_token_first = false; // by llava_ggml_concat
    bool positions_turned  = false; // by llava_clip_turn_positions
    bool depth_corrected   = false;
    int  n_layer_run       = -1;

    ~llava_projector() {
        mtmd_free(ctx); // before the pool that its back-end points to
        llava_threadpool_free(pool);
    }
};

llava_projector_params llava_projector_params_default(void) {
    llava_projector_params params = {};
    params.use_gpu          = true;
    params.warmup           = true;
    params.n_threads        = 4;
    params.flash_attn       = LLAMA_FLASH_ATTN_TYPE_AUTO;
    params.image_min_tokens = -1;
    params.image_max_tokens = -1;
    params.batch_max_tokens = mtmd_context_params_default().batch_max_tokens;
    params.clip_layout      = LLAVA_CLIP_LAYOUT_REFERENCE;
    return params;
}

// Layers to run so that the second to last layer of the original tower is the output; 0: leave it to the graph.
// The graph runs one layer less than the file stores. Files from the usual converter already lack the last layer
// (llama.cpp#25817), others hold all of them; CLIP and SigLIP towers come with 12, 24, 27, 32 or 48 layers.
static int reference_depth(int n_layer_stored) {
    switch (n_layer_stored) {
        case 11: case 23: case 26: case 31: case 47: return n_layer_stored;
        default:                                     return 0;
    }
}

int32_t llava_projector_load(const char * path, const llama_model * model, const llava_projector_params * params,
                             llava_projector ** out) {
    return guard([&]() -> int32_t {
        REQUIRE(path && params && out);
        REQUIRE(params->n_threads > 0 && params->n_threads <= GGML_MAX_N_THREADS && params->batch_max_tokens > 0);
        std::unique_ptr<llava_projector> result(new llava_projector);

        mtmd_context_params mparams = mtmd_context_params_default();
        mparams.use_gpu          = params->use_gpu;
        mparams.print_timings    = false;
        mparams.n_threads        = params->n_threads;
        mparams.flash_attn_type  = (llama_flash_attn_type) params->flash_attn;
        mparams.warmup           = params->warmup;
        mparams.image_min_tokens = params->image_min_tokens;
        mparams.image_max_tokens = params->image_max_tokens;
        mparams.batch_max_tokens = params->batch_max_tokens;
        mparams.progress_callback           = params->progress;
        mparams.progress_callback_user_data = params->progress_user_data;
        mparams.cb_eval           = params->eval;
        mparams.cb_eval_user_data = params->eval_user_data;

        const bool reference = params->clip_layout == LLAVA_CLIP_LAYOUT_REFERENCE;
        class_token_scope scope(reference);

        result->ctx = mtmd_init_from_file(path, model, mparams);
        if (!result->ctx) {
            return llava_fail(LLAVA_STATUS_FAILED, "mtmd_init_from_file returned no projector");
        }

        clip_ctx * vision = result->ctx->ctx_v;
        if (vision && llava_clip_is_llava_graph(vision)) {
            result->class_token_first = reference && llava_clip_has_class_token(vision);
            const clip_hparams * hparams = clip_get_hparams(vision);
            const int depth = reference_depth(hparams->n_layer);
            int deepest = -1; // negative entries mean "not set" to the graph
            for (int layer : hparams->feature_layers) {
                deepest = std::max(deepest, layer);
            }
            result->n_layer_run = deepest < 0 ? hparams->n_layer - 1 : deepest;
            if (reference && depth > 0 && deepest < 0) {
                llava_clip_set_feature_layer(vision, depth);
                result->n_layer_run     = depth;
                result->depth_corrected = true;
            }
        }
        // after the warm-up of mtmd_init_from_file, whose output nobody sees
        if (vision && reference && llava_clip_appends_class_token(vision)) {
            if (!llava_clip_turn_positions(vision)) {
                return llava_fail(LLAVA_STATUS_FAILED, "the position table has no row for the class token");
            }
            result->positions_turned = true;
        }

        if (llava_threadpool_new(params->n_threads, &result->pool) != LLAVA_STATUS_OK) {
            return LLAVA_STATUS_FAILED; // text already set
        }
        for (clip_ctx * clip : { result->ctx->ctx_v, result->ctx->ctx_a }) {
            if (clip && !llava_clip_set_threadpool(clip, result->pool->pool)) {
                return llava_fail(LLAVA_STATUS_FAILED, "the CPU back-end takes no threadpool");
            }
        }

        *out = result.release();
        return LLAVA_STATUS_OK;
    });
}

void llava_projector_free(llava_projector * projector) {
    guard([&]() -> int32_t {
        delete projector;
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_projector_get_info(const llava_projector * projector, llava_projector_info * info) {
    return guard([&]() -> int32_t {
        REQUIRE(projector && info);
        *info = {};
        const mtmd_context * ctx = projector->ctx;
        info->has_vision       = ctx->ctx_v != nullptr;
        info->has_audio        = ctx->ctx_a != nullptr;
        info->n_embd_out       = (int32_t) ctx->n_embd_out();
        info->n_layer_run      = projector->n_layer_run;
        info->image_max_tokens = -1;
        if (const clip_ctx * vision = ctx->ctx_v) {
            const clip_hparams * hparams = clip_get_hparams(vision);
            const auto name = PROJECTOR_TYPE_NAMES.find(clip_get_projector_type(vision));
            if (name != PROJECTOR_TYPE_NAMES.end()) {
                snprintf(info->type, sizeof(info->type), "%s", name->second.c_str());
            }
            info->use_mrope         = mtmd_decode_use_mrope(ctx);
            info->use_non_causal    = mtmd_decode_use_non_causal(ctx, nullptr);
            info->support_batch     = clip_support_batch(vision);
            info->has_class_token   = llava_clip_has_class_token(vision);
            info->class_token_moved = projector->class_token_first || projector->positions_turned;
            info->n_embd            = hparams->n_embd;
            info->n_ff              = hparams->n_ff;
            info->n_head            = hparams->n_head;
            info->n_layer           = hparams->n_layer;
            info->depth_corrected   = projector->depth_corrected;
            info->image_size        = hparams->image_size;
            info->patch_size        = hparams->patch_size;
            info->n_merge           = hparams->n_merge;
            info->n_temporal_merge  = clip_model_n_temporal_merge(vision);
            info->image_min_pixels  = hparams->image_min_pixels;
            info->image_max_pixels  = hparams->image_max_pixels;
            info->image_max_tokens  = clip_get_image_max_tokens(vision);
            info->flash_attn        = llava_clip_get_flash_attn(vision);
            std::copy(hparams->image_mean, hparams->image_mean + 3, info->image_mean);
            std::copy(hparams->image_std,  hparams->image_std  + 3, info->image_std);
        }
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_projector_set_flash_attn(llava_projector * projector, int32_t flash_attn, int32_t * previous) {
    return guard([&]() -> int32_t {
        REQUIRE(projector && previous && projector->ctx->ctx_v);
        REQUIRE(flash_attn >= LLAMA_FLASH_ATTN_TYPE_AUTO && flash_attn <= LLAMA_FLASH_ATTN_TYPE_ENABLED);
        *previous = llava_clip_get_flash_attn(projector->ctx->ctx_v);
        llava_clip_set_flash_attn(projector->ctx->ctx_v, flash_attn);
        return LLAVA_STATUS_OK;
    });
}

//
// prepared pictures
//

struct llava_prepared {
    const mtmd_context *          ctx;
    std::vector<mtmd_input_chunk> chunks;
};

int32_t llava_prepare(const llava_projector * projector, const uint8_t * rgb, uint32_t nx, uint32_t ny,
                      size_t n_tokens_before, uint32_t image_index, llava_prepared ** out) {
    return guard([&]() -> int32_t {
        REQUIRE(projector && out);
        REQUIRE(projector->ctx->ctx_v); // a projector without vision cannot prepare a picture
        // clip_image_size::area() asserts these
        REQUIRE(nx > 0 && nx <= 46000 && ny > 0 && ny <= 46000);
        REQUIRE((uint64_t) nx * ny <= INT32_MAX / 3);
        REQUIRE(n_tokens_before <= INT32_MAX);

        mtmd_bitmap bitmap(rgb, nx, ny);
        mtmd_tokenizer tokenizer(projector->ctx, nullptr, 0, false);

        // a stand-in for the text before, as two families pad or number by what came before
        tokenizer.cur.entries.push_back(mtmd_input_chunk{
            MTMD_INPUT_CHUNK_TYPE_TEXT, std::vector<llama_token>(n_tokens_before, 0), nullptr, nullptr });
        tokenizer.n_images_added = image_index;

        std::vector<const mtmd_bitmap *> bitmaps = { &bitmap };
        const int32_t ret = tokenizer.add_media(bitmaps);
        if (ret != 0) {
            return llava_fail(LLAVA_STATUS_FAILED, "libmtmd could not preprocess the picture");
        }

        auto & entries = tokenizer.cur.entries;
        auto & first   = entries.front().tokens_text;
        first.erase(first.begin(), first.begin() + (ptrdiff_t) n_tokens_before);
        if (first.empty()) {
            entries.erase(entries.begin());
        }
        *out = new llava_prepared{ projector->ctx, std::move(entries) };
        return LLAVA_STATUS_OK;
    });
}

void llava_prepared_free(llava_prepared * prepared) {
    guard([&]() -> int32_t {
        delete prepared;
        return LLAVA_STATUS_OK;
    });
}

size_t llava_prepared_n_chunks(const llava_prepared * prepared) {
    return prepared ? prepared->chunks.size() : 0;
}

// Finds how the rows of a chunk lie on a grid. Tiles are squares of patches, merged by some factor per side; the factor in
// the file is tried first, the others are those that graphs hard-code. Zero where nothing fits: an unknown layout is
// said to be unknown, never guessed.
static void find_grid(const clip_hparams * hparams, const mtmd_image_tokens & image, llava_chunk_info * info) {
    if (image.pos == MTMD_POS_TYPE_HUNYUANVL) {
        info->grid_x = image.nx;
        info->grid_y = image.ny;
        info->row_breaks = info->n_lead = info->n_trail = 1;
        return;
    }
    if (image.pos == MTMD_POS_TYPE_MROPE && (size_t) image.nx * image.ny == info->n_tokens && image.ny > 0) {
        info->grid_x = image.nx;
        info->grid_y = image.ny;
        return;
    }
    if (image.batch_f32.entries.size() != 1 || hparams->patch_size <= 0) {
        return;
    }
    const clip_image_f32 & tile = image.batch_f32.entries[0];
    if (tile.anyres.is_tiled() || tile.lead_pad != 0 || tile.add_viewsep || tile.add_newline) {
        return;
    }
    const size_t n = info->n_tokens;
    for (const int merge : { hparams->n_merge, 1, 2, 3, 4 }) {
        if (merge <= 0) {
            continue;
        }
        const size_t step = (size_t) hparams->patch_size * (size_t) merge;
        const size_t gx   = (size_t) tile.nx() / step;
        const size_t gy   = (size_t) tile.ny() / step;
        if (gx == 0 || gy == 0) {
            continue;
        }
        const bool plain  = gx * gy == n;
        const bool breaks = gx * gy + gy - 1 == n || gx * gy + gy == n;
        if (plain || breaks) {
            info->grid_x     = (uint32_t) gx;
            info->grid_y     = (uint32_t) gy;
            info->row_breaks = plain ? 0 : 1;
            return;
        }
    }
}

int32_t llava_prepared_chunk(const llava_prepared * prepared, size_t index, llava_chunk_info * info) {
    return guard([&]() -> int32_t {
        REQUIRE(prepared && info && index < prepared->chunks.size());
        *info = {};
        const mtmd_input_chunk & chunk = prepared->chunks[index];
        info->n_tokens = mtmd_input_chunk_get_n_tokens(&chunk);
        info->n_pos    = mtmd_input_chunk_get_n_pos(&chunk);
        if (chunk.type == MTMD_INPUT_CHUNK_TYPE_TEXT) {
            info->kind   = LLAVA_CHUNK_TEXT;
            info->tokens = chunk.tokens_text.data();
            return LLAVA_STATUS_OK;
        }
        REQUIRE(chunk.type == MTMD_INPUT_CHUNK_TYPE_IMAGE && chunk.tokens_image);
        const mtmd_image_tokens & image = *chunk.tokens_image;
        info->kind        = LLAVA_CHUNK_IMAGE;
        info->pos_kind    = (int32_t) image.pos;
        info->non_causal  = mtmd_decode_use_non_causal(prepared->ctx, &chunk);
        info->placeholder = image.is_placeholder();
        info->n_tiles     = image.batch_f32.entries.size();
        find_grid(clip_get_hparams(prepared->ctx->ctx_v), image, info);
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_prepared_tile(const llava_prepared * prepared, size_t index, size_t tile, llava_tile_info * info) {
    return guard([&]() -> int32_t {
        REQUIRE(prepared && info && index < prepared->chunks.size());
        const mtmd_input_chunk & chunk = prepared->chunks[index];
        REQUIRE(chunk.type == MTMD_INPUT_CHUNK_TYPE_IMAGE && chunk.tokens_image);
        REQUIRE(tile < chunk.tokens_image->batch_f32.entries.size());
        const clip_image_f32 & entry = chunk.tokens_image->batch_f32.entries[tile];
        *info = {};
        info->nx          = (uint32_t) entry.nx();
        info->ny          = (uint32_t) entry.ny();
        info->add_viewsep = entry.add_viewsep;
        info->add_newline = entry.add_newline;
        info->lead_pad    = entry.lead_pad;
        info->grid_x      = entry.anyres.grid_x;
        info->grid_y      = entry.anyres.grid_y;
        info->orig_nx     = entry.anyres.orig_nx;
        info->orig_ny     = entry.anyres.orig_ny;
        if (!entry.is_placeholder()) {
            const auto & buf = entry.get_ro_buf();
            info->data   = buf.data();
            info->n_data = buf.size();
        }
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_prepared_positions(const llava_prepared * prepared, size_t index, llama_pos pos_0, llama_pos * out, size_t n_out) {
    return guard([&]() -> int32_t {
        REQUIRE(prepared && out && index < prepared->chunks.size());
        const mtmd_input_chunk & chunk = prepared->chunks[index];
        const size_t n_tokens = mtmd_input_chunk_get_n_tokens(&chunk);
        REQUIRE(n_out / 4 == n_tokens && n_out % 4 == 0 && pos_0 >= 0);
        for (size_t i = 0; i < n_tokens; i++) {
            llama_pos * p = out + 4 * i;
            if (chunk.type == MTMD_INPUT_CHUNK_TYPE_IMAGE) {
                const mtmd_decoder_pos pos = mtmd_image_tokens_get_decoder_pos(chunk.tokens_image.get(), pos_0, i);
                p[0] = (llama_pos) pos.t;
                p[1] = (llama_pos) pos.y;
                p[2] = (llama_pos) pos.x;
                p[3] = (llama_pos) pos.z;
            } else {
                std::fill(p, p + 4, pos_0 + (llama_pos) i);
            }
        }
        return LLAVA_STATUS_OK;
    });
}

//
// encoding
//

struct abort_scope {
    clip_ctx * clip;
    abort_scope(clip_ctx * clip, ggml_abort_callback callback, void * user_data) : clip(clip) {
        llava_clip_set_abort(clip, callback, user_data);
    }
    ~abort_scope() { llava_clip_set_abort(clip, nullptr, nullptr); }
    abort_scope(const abort_scope &) = delete;
    abort_scope & operator=(const abort_scope &) = delete;
};

int32_t llava_encode(llava_projector * projector, const llava_chunk_ref * refs, size_t n_refs, float * out, size_t n_out,
                     ggml_abort_callback abort, void * abort_user_data, size_t * n_taken) {
    return guard([&]() -> int32_t {
        REQUIRE(projector && refs && n_refs > 0 && out && n_taken);
        *n_taken = 0;
        mtmd_context * ctx = projector->ctx;
        REQUIRE(ctx->ctx_v);
        const size_t width = (size_t) ctx->n_embd_out();
        size_t n_need = 0;
        for (size_t i = 0; i < n_refs; i++) {
            REQUIRE(refs[i].prepared && refs[i].prepared->ctx == ctx);
            REQUIRE(refs[i].chunk < refs[i].prepared->chunks.size());
            const mtmd_input_chunk & chunk = refs[i].prepared->chunks[refs[i].chunk];
            REQUIRE(chunk.type == MTMD_INPUT_CHUNK_TYPE_IMAGE && chunk.tokens_image && !chunk.is_placeholder());
            n_need += mtmd_input_chunk_get_n_tokens(&chunk) * width;
        }
        REQUIRE(n_out == n_need);

        mtmd::batch_ptr batch(mtmd_batch_init(ctx));
        size_t taken = 0;
        for (; taken < n_refs; taken++) {
            const mtmd_input_chunk * chunk = &refs[taken].prepared->chunks[refs[taken].chunk];
            if (mtmd_batch_add_chunk(batch.get(), chunk) != 0) {
                break;
            }
        }
        if (taken == 0) {
            return llava_fail(LLAVA_STATUS_FAILED, "mtmd_batch_add_chunk refused the first chunk");
        }

        class_token_scope layout(projector->class_token_first);
        abort_scope stop(ctx->ctx_v, abort, abort_user_data);
        if (mtmd_batch_encode(batch.get()) != 0) {
            if (abort && abort(abort_user_data)) {
                return llava_fail(LLAVA_STATUS_CANCELLED, "cancelled");
            }
            return llava_fail(LLAVA_STATUS_FAILED, "mtmd_batch_encode failed");
        }
        // for a single chunk the output is as long as the chunk, for several it holds them one after the other
        size_t n_have = 0;
        for (size_t i = 0; i < taken; i++) {
            n_have += mtmd_input_chunk_get_n_tokens(&refs[i].prepared->chunks[refs[i].chunk]) * width;
        }
        if (batch->output_embd.size() != n_have) {
            return llava_fail(LLAVA_STATUS_FAILED, "the encoder's output has another size than its chunks");
        }
        std::copy(batch->output_embd.begin(), batch->output_embd.end(), out);
        *n_taken = taken;
        return LLAVA_STATUS_OK;
    });
}

#ifdef LLAVA_PARITY
#include "llava_parity.h"
#endif

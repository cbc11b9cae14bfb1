// The hook into ggml's CPU back-end: before it runs its own code, that asks its "extra buffer types" for every node of a graph.
// Ours owns no buffers; it answers for the nodes that the installed table of functions takes, and leaves the rest alone.
#include "llava_guard.h"

#ifdef LLAVA_NO_GEMM

// loadable back-ends: the CPU code is another library, whose internals cannot be reached
int32_t llava_gemm_install(const llava_gemm_table * table) {
    REQUIRE(table);
    return llava_fail(LLAVA_STATUS_FAILED, "the CPU back-end of this build is loaded at run time and has no hook");
}

#else

#include "ggml-cpu/common.h"
#include "ggml-cpu/ops.h"
#include "ggml-cpu/tiled/tiled.h"
#include "ggml-cpu/traits.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <typeinfo>

extern "C" void ggml_barrier(struct ggml_threadpool * threadpool);

namespace {

llava_gemm_table g_table; // written once, before the hook can be asked

// the repacked layout that is known: eight rows woven, eight bytes at a time. The class of the tensor's traits names it
// ("Itanium" mangling: elsewhere the name is another one, and ggml stays in charge)
bool is_woven_8x8(const ggml_tensor * weights) {
    if (weights->view_src || !weights->extra) {
        return false;
    }
    const char * layout = nullptr;
    switch (weights->type) {
        case GGML_TYPE_Q4_0:   layout = "13tensor_traitsI10block_q4_0L?8EL?8E"; break;
        case GGML_TYPE_Q4_K:   layout = "13tensor_traitsI10block_q4_KL?8EL?8E"; break;
        case GGML_TYPE_IQ4_NL: layout = "13tensor_traitsI12block_iq4_nlL?8EL?8E"; break;
        default:               return false;
    }
    // '?' stands for the platform's int64_t: l or x
    auto * traits = static_cast<ggml::cpu::tensor_traits *>(weights->extra);
    const char * name = typeid(*traits).name();
    const char * at   = strstr(name, "13tensor_traitsI");
    if (!at) {
        return false;
    }
    for (; *layout; ++layout, ++at) {
        if (*at == '\0' || (*layout != '?' && *layout != *at)) {
            return false;
        }
    }
    return true;
}

// rows of all higher dimensions as rows of one matrix
bool flat_rows(const ggml_tensor * t) {
    return t->nb[0] == ggml_type_size(t->type) && (t->ne[2] * t->ne[3] == 1 || (t->nb[2] == t->nb[1] * t->ne[1] && t->nb[3] == t->nb[2] * t->ne[2]));
}

// rows, columns and strides of a product of one matrix
void plain_of(const ggml_tensor * op, llava_gemm_product & out) {
    const ggml_tensor * x = op->src[1];
    out.rows          = x->ne[1] * x->ne[2] * x->ne[3];
    out.input_stride  = x->nb[1];
    out.output_stride = op->nb[1];
}

// tokens, experts and strides of a product of many
void experts_of(const ggml_tensor * op, llava_gemm_product & out) {
    const ggml_tensor * w   = op->src[0];
    const ggml_tensor * x   = op->src[1];
    const ggml_tensor * ids = op->src[2];
    out.rows               = ids->ne[1];
    out.input_stride       = x->nb[2];
    out.output_stride      = op->nb[2];
    out.n_experts          = (int32_t) w->ne[2];
    out.n_slots            = (int32_t) ids->ne[0];
    out.expert_stride      = w->nb[2];
    out.ids                = (const int32_t *) ids->data;
    out.ids_stride         = ids->nb[1];
    out.slot_input_stride  = x->ne[1] == 1 ? 0 : x->nb[1];
    out.slot_output_stride = op->nb[1];
}

bool has_plain_shape(const ggml_tensor * op) {
    return op->src[0]->ne[2] == 1 && flat_rows(op->src[1]) && flat_rows(op);
}

bool has_experts_shape(const ggml_tensor * op) {
    const ggml_tensor * x   = op->src[1];
    const ggml_tensor * ids = op->src[2];
    return ids && ids->type == GGML_TYPE_I32 && ids->nb[0] == sizeof(int32_t) && ids->ne[2] * ids->ne[3] == 1 && x->ne[3] == 1 &&
           x->nb[0] == sizeof(float) && op->nb[0] == sizeof(float) && op->ne[3] == 1 && x->ne[2] == ids->ne[1] && op->ne[2] == ids->ne[1] &&
           op->ne[1] == ids->ne[0] && (x->ne[1] == 1 || x->ne[1] == ids->ne[0]) && op->src[0]->ne[2] <= INT32_MAX;
}

bool product_of(const ggml_tensor * op, llava_gemm_product & out) {
    const ggml_tensor * w = op->src[0];
    const ggml_tensor * x = op->src[1];
    const bool experts = op->op == GGML_OP_MUL_MAT_ID;
    if (x->type != GGML_TYPE_F32 || op->type != GGML_TYPE_F32 || w->ne[3] != 1 || w->nb[0] != ggml_type_size(w->type) ||
        ggml_get_op_params_i32(op, 1) != 0 || !(experts ? has_experts_shape(op) : has_plain_shape(op))) {
        return false;
    }
    const ggml_backend_buffer_t buffer = w->view_src ? w->view_src->buffer : w->buffer;
    if (!buffer) {
        return false;
    }
    const bool host = ggml_backend_buffer_is_host(buffer);
    if (!host && (strcmp(ggml_backend_buffer_name(buffer), "CPU_REPACK") != 0 || !is_woven_8x8(w))) {
        return false;
    }
    out = {};
    out.type          = w->type;
    out.woven         = !host;
    out.k             = w->ne[0];
    out.columns       = w->ne[1];
    out.weights       = w->data;
    out.weight_stride = w->nb[1];
    out.input         = (const float *) x->data;
    out.output        = (float *) op->data;
    if (experts) {
        experts_of(op, out);
    } else {
        plain_of(op, out);
    }
    return true;
}

bool attention_of(const ggml_tensor * op, llava_gemm_attention & out) {
    const ggml_tensor * q = op->src[0];
    const ggml_tensor * k = op->src[1];
    const ggml_tensor * v = op->src[2];
    if (op->src[3] || op->src[4] || q->type != GGML_TYPE_F32 || k->type != v->type || (k->type != GGML_TYPE_F16 && k->type != GGML_TYPE_F32) ||
        k->ne[0] != v->ne[0] || k->ne[2] != q->ne[2] || v->ne[2] != q->ne[2] || k->ne[3] != q->ne[3] || v->ne[3] != q->ne[3] ||
        q->nb[0] != sizeof(float) || k->nb[0] != ggml_type_size(k->type) || v->nb[0] != ggml_type_size(v->type)) {
        return false;
    }
    // scale, ALiBi, soft cap, precision; anything else has a meaning that is not known here
    for (size_t i = 1; i < GGML_MAX_OP_PARAMS / sizeof(int32_t); ++i) {
        if (i != 3 && ggml_get_op_params_i32(op, (uint32_t) i) != 0) {
            return false;
        }
    }
    memcpy(&out.scale, op->op_params, sizeof(float));
    out.half_kv = k->type == GGML_TYPE_F16;
    out.size    = q->ne[0];
    out.queries = q->ne[1];
    out.keys    = k->ne[1];
    out.heads   = q->ne[2];
    out.batch   = q->ne[3];
    out.q       = (const float *) q->data;
    out.k       = k->data;
    out.v       = v->data;
    out.output  = (float *) op->data;
    for (int i = 0; i < 3; ++i) {
        out.q_stride[i]      = q->nb[i + 1];
        out.k_stride[i]      = k->nb[i + 1];
        out.v_stride[i]      = v->nb[i + 1];
        out.output_stride[i] = op->nb[i + 1];
    }
    return true;
}

// Work memory for ggml's own code, which runs when the table declines a node that it took when the graph was planned.
bool upstream_work_size(int n_threads, const ggml_tensor * op, bool woven, size_t & size) {
    if (op->op == GGML_OP_FLASH_ATTN_EXT) {
        const size_t n = n_threads, dk = op->src[1]->ne[0], dv = op->src[2]->ne[0], heads = op->src[0]->ne[2];
        const size_t tiled = GGML_FA_TILE_Q * dk + 2 * GGML_FA_TILE_Q * GGML_FA_TILE_KV + GGML_FA_TILE_Q * dv + GGML_FA_TILE_KV * dv + GGML_FA_TILE_KV * dk;
        size = sizeof(float) * std::max(tiled * n, heads * n * (2 + dv) + n * (dk + 2 * dv));
        return true;
    }
    if (woven) {
        return static_cast<ggml::cpu::tensor_traits *>(op->src[0]->extra)->work_size(n_threads, op, size);
    }
    const ggml_type converted = ggml_get_type_traits_cpu(op->src[0]->type)->vec_dot_type;
    const size_t    tiled     = ggml_tiled_wdata_size(n_threads, const_cast<ggml_tensor *>(op));
    size = op->src[1]->type == converted ? 0 : ggml_row_size(converted, ggml_nelements(op->src[1])) + sizeof(int64_t);
    if (op->op == GGML_OP_MUL_MAT_ID) {
        // rows of each expert, where they come from, and a counter on a cache line of its own
        const size_t experts = op->src[0]->ne[2], rows = op->src[2]->ne[0] * op->src[2]->ne[1];
        size += experts * (sizeof(int64_t) + 2 * sizeof(int32_t) * rows + CACHE_LINE_SIZE) + 2 * sizeof(int64_t) + CACHE_LINE_SIZE;
    }
    size = GGML_PAD(size, 64) + tiled;
    return true;
}

struct team_data {
    ggml_threadpool * threadpool;
};

void team_barrier(void * data) {
    ggml_barrier(static_cast<team_data *>(data)->threadpool);
}

class traits final : public ggml::cpu::tensor_traits {
  public:
    bool work_size(int n_threads, const ggml_tensor * op, size_t & size) override {
        size_t ours = 0;
        bool   woven = false;
        if (op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) {
            llava_gemm_product product;
            if (!product_of(op, product)) {
                return false;
            }
            ours  = g_table.product_work(&product, n_threads);
            woven = product.woven;
        } else {
            llava_gemm_attention attention;
            if (!attention_of(op, attention)) {
                return false;
            }
            ours = g_table.attention_work(&attention, n_threads);
        }
        size_t upstream = 0;
        if (ours == 0 || !upstream_work_size(n_threads, op, woven, upstream)) {
            return false;
        }
        size = std::max(ours, upstream);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        if (params->use_ref) {
            return false;
        }
        team_data data = { params->threadpool };
        const llava_gemm_team team = { params->ith, params->nth, team_barrier, &data, params->wdata, params->wsize };
        if (op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) {
            llava_gemm_product product;
            return product_of(op, product) && g_table.product(&product, &team);
        }
        llava_gemm_attention attention;
        return attention_of(op, attention) && g_table.attention(&attention, &team);
    }
};

class buffer_type final : public ggml::cpu::extra_buffer_type {
    traits answer;

  public:
    // no tensor is ever put into a buffer of this type
    bool supports_op(ggml_backend_dev_t, const ggml_tensor *) override { return false; }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        if (op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) {
            llava_gemm_product product;
            return product_of(op, product) && g_table.wants_product(&product) ? &answer : nullptr;
        }
        if (op->op == GGML_OP_FLASH_ATTN_EXT) {
            llava_gemm_attention attention;
            return attention_of(op, attention) && g_table.wants_attention(&attention) ? &answer : nullptr;
        }
        return nullptr;
    }
};

const char * name(ggml_backend_buffer_type_t) {
    return "LLAVA_GEMM";
}

} // namespace

int32_t llava_gemm_install(const llava_gemm_table * table) {
    return guard([&]() -> int32_t {
        REQUIRE(table && table->wants_product && table->product_work && table->product);
        REQUIRE(table->wants_attention && table->attention_work && table->attention);
        static std::mutex mutex;
        static bool       installed = false;
        std::lock_guard<std::mutex> lock(mutex);
        if (installed) {
            return llava_fail(LLAVA_STATUS_FAILED, "the hook is installed already");
        }
        // Model loaders ask for a list of buffer types to put weights into. It is a copy, made at the first call: made now, it
        // does not hold ours.
        ggml_backend_reg_t reg = ggml_backend_cpu_reg();
        auto * get = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(reg, "ggml_backend_dev_get_extra_bufts");
        if (!get) {
            return llava_fail(LLAVA_STATUS_FAILED, "the CPU back-end has no list of extra buffer types");
        }
        get(ggml_backend_reg_dev_get(reg, 0));

        static buffer_type                     answers;
        static struct ggml_backend_buffer_type type = {};
        type.iface.get_name = name;
        type.device         = nullptr;
        type.context        = &answers;
        g_table             = *table;
        // first, so that repacked weights come here before their own traits take them
        auto & types = ggml_backend_cpu_get_extra_buffer_types();
        types.insert(types.begin(), &type);
        installed = true;
        return LLAVA_STATUS_OK;
    });
}

#endif

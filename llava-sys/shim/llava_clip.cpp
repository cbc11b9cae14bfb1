// The one unit that sees struct clip_ctx, which upstream defines in a source file. Nothing of upstream is changed.
#include "clip.cpp"

#include "llava_clip.h"

template <typename F> static F cpu_proc(clip_ctx * ctx, const char * name) {
    ggml_backend_dev_t dev = ggml_backend_get_device(ctx->backend_cpu);
    ggml_backend_reg_t reg = dev ? ggml_backend_dev_backend_reg(dev) : nullptr;
    return reg ? (F) ggml_backend_reg_get_proc_address(reg, name) : nullptr;
}

bool llava_clip_set_threadpool(clip_ctx * ctx, ggml_threadpool * pool) {
    typedef void (*set_threadpool_t)(ggml_backend_t, ggml_threadpool *);
    auto fn = cpu_proc<set_threadpool_t>(ctx, "ggml_backend_cpu_set_threadpool");
    if (!fn) {
        return false;
    }
    fn(ctx->backend_cpu, pool);
    return true;
}

bool llava_clip_set_abort(clip_ctx * ctx, ggml_abort_callback callback, void * user_data) {
    auto fn = cpu_proc<ggml_backend_set_abort_callback_t>(ctx, "ggml_backend_set_abort_callback");
    if (!fn) {
        return false;
    }
    fn(ctx->backend_cpu, callback, user_data);
    return true;
}

bool llava_clip_has_class_token(const clip_ctx * ctx) {
    return ctx->model.class_embedding != nullptr;
}

bool llava_clip_is_llava_graph(const clip_ctx * ctx) {
    switch (ctx->proj_type()) {
        case PROJECTOR_TYPE_MLP:
        case PROJECTOR_TYPE_MLP_NORM:
        case PROJECTOR_TYPE_LDP:
        case PROJECTOR_TYPE_LDPV2:
            return ctx->model.hparams.has_llava_projector;
        default:
            return false;
    }
}

bool llava_clip_appends_class_token(const clip_ctx * ctx) {
    switch (ctx->proj_type()) {
        case PROJECTOR_TYPE_INTERNVL:
        case PROJECTOR_TYPE_COGVLM:
            return ctx->model.class_embedding != nullptr;
        default:
            return false;
    }
}

bool llava_clip_turn_positions(clip_ctx * ctx) {
    ggml_tensor * table = ctx->model.position_embeddings;
    if (!table || !ggml_is_contiguous(table) || table->ne[1] < 2 || ggml_nrows(table) != table->ne[1]) {
        return false;
    }
    std::vector<uint8_t> rows(ggml_nbytes(table));
    ggml_backend_tensor_get(table, rows.data(), 0, rows.size());
    std::rotate(rows.begin(), rows.begin() + table->nb[1], rows.end());
    ggml_backend_tensor_set(table, rows.data(), 0, rows.size());
    return true;
}

void llava_clip_set_feature_layer(clip_ctx * ctx, int n) {
    ctx->model.hparams.feature_layers = { n };
}

int llava_clip_get_flash_attn(const clip_ctx * ctx) {
    return ctx->flash_attn_type;
}

void llava_clip_set_flash_attn(clip_ctx * ctx, int flash_attn) {
    ctx->flash_attn_type = (clip_flash_attn_type) flash_attn;
}

// Oracles for tests: what upstream's own helper does with the same handles. Part of llava_shim.cpp, whose types it needs;
// only in parity builds.
#pragma once

int32_t llava_parity_eval(llava_projector * projector, llama_context * ctx, const char * const * texts,
                          const uint8_t * const * rgbs, const uint32_t * nx, const uint32_t * ny, size_t n_images,
                          bool add_special, int32_t n_batch, llama_pos * n_past) {
    return guard([&]() -> int32_t {
        REQUIRE(projector && ctx && texts && n_past && n_batch > 0);
        class_token_scope layout(projector->class_token_first);
        std::vector<mtmd_input_text> inputs(n_images + 1);
        std::vector<mtmd_input_part> parts;
        mtmd::bitmaps bitmaps;
        for (size_t i = 0; i < n_images; i++) {
            bitmaps.entries.emplace_back(mtmd_bitmap_init(nx[i], ny[i], rgbs[i]));
        }
        for (size_t i = 0; i <= n_images; i++) {
            inputs[i] = { texts[i], strlen(texts[i]), false, true };
            parts.push_back({ &inputs[i], nullptr });
            if (i < n_images) {
                parts.push_back({ nullptr, bitmaps.entries[i].ptr.get() });
            }
        }
        std::vector<const mtmd_input_part *> pointers;
        for (const auto & part : parts) {
            pointers.push_back(&part);
        }
        mtmd::input_chunks chunks(mtmd_input_chunks_init());
        if (mtmd_tokenize_from_parts(projector->ctx, chunks.ptr.get(), pointers.data(), pointers.size(), add_special) != 0) {
            return llava_fail(LLAVA_STATUS_FAILED, "mtmd_tokenize_from_parts failed");
        }
        const llama_pos start = *n_past;
        if (mtmd_helper_eval_chunks(projector->ctx, ctx, chunks.ptr.get(), start, 0, n_batch, true, n_past) != 0) {
            return llava_fail(LLAVA_STATUS_FAILED, "mtmd_helper_eval_chunks failed");
        }
        return LLAVA_STATUS_OK;
    });
}

int32_t llava_parity_decode(const uint8_t * bytes, size_t len, uint8_t ** rgb, uint32_t * nx, uint32_t * ny) {
    return guard([&]() -> int32_t {
        REQUIRE(bytes && rgb && nx && ny);
        auto res = mtmd_helper_bitmap_init_from_buf(nullptr, bytes, len, false, mtmd_helper_init_opt_default());
        mtmd::bitmap bitmap(res.bitmap);
        if (!res.bitmap) {
            return llava_fail(LLAVA_STATUS_FAILED, "upstream cannot decode it");
        }
        const size_t n = mtmd_bitmap_get_n_bytes(res.bitmap);
        *rgb = (uint8_t *) malloc(n);
        if (!*rgb) {
            throw std::bad_alloc();
        }
        memcpy(*rgb, mtmd_bitmap_get_data(res.bitmap), n);
        *nx = mtmd_bitmap_get_nx(res.bitmap);
        *ny = mtmd_bitmap_get_ny(res.bitmap);
        return LLAVA_STATUS_OK;
    });
}

void llava_parity_free(void * p) {
    free(p);
}

int32_t llava_parity_encode(llava_projector * projector, const llava_prepared * prepared, size_t chunk, float * out, size_t n_out) {
    return guard([&]() -> int32_t {
        REQUIRE(projector && prepared && out && chunk < prepared->chunks.size());
        class_token_scope layout(projector->class_token_first);
        if (mtmd_encode_chunk(projector->ctx, &prepared->chunks[chunk]) != 0) {
            return llava_fail(LLAVA_STATUS_FAILED, "mtmd_encode_chunk failed");
        }
        REQUIRE(projector->ctx->out_embd.size() == n_out);
        std::copy(projector->ctx->out_embd.begin(), projector->ctx->out_embd.end(), out);
        return LLAVA_STATUS_OK;
    });
}

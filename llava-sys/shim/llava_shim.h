// The C face of what llama.cpp only offers to C++: guarded calls, preprocessed pixels, projector facts, a persistent
// encoder threadpool. Every function is noexcept for the caller: exceptions are caught and turned into a status, whose
// text is kept per thread in llava_last_error().
#ifndef LLAVA_SHIM_H
#define LLAVA_SHIM_H

#include "ggml.h"
#include "llama.h"
#include "mtmd.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum llava_status {
    LLAVA_STATUS_OK        = 0,
    LLAVA_STATUS_ARGUMENT  = 1, // null, empty or out of range: the call was not made
    LLAVA_STATUS_EXCEPTION = 2, // C++ threw
    LLAVA_STATUS_FAILED    = 3, // the native call reported failure
    LLAVA_STATUS_CANCELLED = 4, // a callback asked to stop
};

// text of the last status other than OK on this thread, never NULL, valid until the next call on this thread
const char * llava_last_error(void);

//
// guarded llama.h
//

int32_t llava_backend_init(void);

int32_t llava_model_load(const char * path, const struct llama_model_params * params, struct llama_model ** out);
int32_t llava_context_new(struct llama_model * model, const struct llama_context_params * params, struct llama_context ** out);

// a token, or (row is not NULL) an embedding row of n_embd floats; plain RoPE reads pos[0] alone
struct llava_batch_entry {
    const float * row;
    size_t        n_embd;
    llama_token   token;
    llama_seq_id  seq_id;
    llama_pos     pos[4];
    bool          logits;
};

int32_t llava_batch_new(struct llama_context * ctx, struct llama_batch_ext ** out);

// replaces what the batch holds; rows are copied. After a failure the batch is empty or has to be filled anew
int32_t llava_batch_fill(struct llama_batch_ext * batch, const struct llava_batch_entry * entries, size_t n_entries);

// *ret receives the answer of llama_process()
int32_t llava_process(struct llama_context * ctx, struct llama_batch_ext * batch, int32_t * ret);

// *n_out receives the number of tokens, or minus the room needed when n_max is too small (status OK in both cases)
int32_t llava_tokenize(const struct llama_vocab * vocab, const char * text, size_t len, llama_token * tokens, size_t n_max,
                       bool add_special, bool parse_special, int32_t * n_out);

// *n_out receives the number of bytes, or minus the room needed
int32_t llava_token_to_piece(const struct llama_vocab * vocab, llama_token token, char * buf, size_t n_max, bool special, int32_t * n_out);

int32_t llava_grammar_new(const struct llama_vocab * vocab, const char * grammar, const char * root, struct llama_sampler ** out);

// upstream's chain in upstream's order: biases, penalties, top-n-sigma, top-k, typical, top-p, min-p, temperature, choice
struct llava_sampler_params {
    const llama_logit_bias * biases;
    size_t                   n_biases;
    int32_t                  n_vocab;
    int32_t                  penalty_last_n;
    float                    penalty_repeat;
    float                    penalty_freq;
    float                    penalty_present;
    float                    top_n_sigma;
    int32_t                  top_k;
    float                    typ_p;
    float                    top_p;
    float                    min_p;
    float                    temp;
    uint32_t                 seed;
};

int32_t llava_sampler_chain_new(const struct llava_sampler_params * params, struct llama_sampler ** out);
int32_t llava_sampler_reset(struct llama_sampler * sampler);
int32_t llava_sampler_apply(struct llama_sampler * sampler, llama_token_data_array * candidates);
int32_t llava_sampler_accept(struct llama_sampler * sampler, llama_token token);

int32_t llava_memory_clear(struct llama_context * ctx);
int32_t llava_memory_seq_rm(struct llama_context * ctx, llama_seq_id seq_id, llama_pos p0, llama_pos p1, bool * removed);
int32_t llava_state_seq_size(struct llama_context * ctx, llama_seq_id seq_id, size_t * size);
int32_t llava_state_seq_get(struct llama_context * ctx, llama_seq_id seq_id, uint8_t * dst, size_t size, size_t * written);
int32_t llava_state_seq_set(struct llama_context * ctx, llama_seq_id seq_id, const uint8_t * src, size_t size, size_t * read);

//
// logs and threads
//

// routes ggml, llama, libmtmd (and, in parity builds, its helper) to one callback; NULL silences them
void llava_log_set(ggml_log_callback callback, void * user_data);

struct llava_threadpool; // a ggml threadpool, found through the back-end registry so that loadable back-ends work too

int32_t llava_threadpool_new(int32_t n_threads, struct llava_threadpool ** out);
void    llava_threadpool_free(struct llava_threadpool * pool);
int32_t llava_threadpool_n_threads(const struct llava_threadpool * pool);
int32_t llava_context_set_threadpool(struct llama_context * ctx, struct llava_threadpool * pool); // NULL detaches

//
// kernels of the caller's in place of ggml's own on the CPU
//

// output[m, n] = sum of input[m, k] * weights[n, k]; strides in bytes
struct llava_gemm_product {
    int32_t      type;  // enum ggml_type of the weights
    bool         woven; // repacked by ggml: eight rows woven, eight bytes at a time
    int64_t      k;
    int64_t      columns;
    int64_t      rows;
    const void * weights;
    size_t       weight_stride;
    const float * input;
    size_t       input_stride;
    float *      output;
    size_t       output_stride;
    // a mixture of experts: weights of n_experts matrices, and n_slots rows of the product for each of rows tokens
    int32_t      n_experts; // 0: none, and the rest has no meaning
    int32_t      n_slots;
    size_t       expert_stride;
    const int32_t * ids;
    size_t       ids_stride;
    size_t       slot_input_stride; // 0: all slots of a token share its row
    size_t       slot_output_stride;
};

// softmax(scale * q k^T) v without a mask; strides in bytes: of a query or key, of a head, of a batch element
// (of the output: of a head, of a query, of a batch element)
struct llava_gemm_attention {
    float        scale;
    bool         half_kv; // k and v are F16, F32 otherwise
    int64_t      size;    // of a head
    int64_t      queries;
    int64_t      keys;
    int64_t      heads;
    int64_t      batch;
    const float * q;
    const void * k;
    const void * v;
    float *      output;
    size_t       q_stride[3];
    size_t       k_stride[3];
    size_t       v_stride[3];
    size_t       output_stride[3];
};

// ggml's threads that compute one node together
struct llava_gemm_team {
    int32_t index;
    int32_t threads;
    void (*barrier)(void * data);
    void *  barrier_data;
    void *  work;
    size_t  work_bytes;
};

// The functions must not unwind. wants: by sizes and types alone, the same answer at all times. work: bytes, 0 to decline.
// The last of each kind computes one thread's part; all threads of a team must get the same answer, false leaves it to ggml.
struct llava_gemm_table {
    bool   (*wants_product)(const struct llava_gemm_product * product);
    size_t (*product_work)(const struct llava_gemm_product * product, int32_t threads);
    bool   (*product)(const struct llava_gemm_product * product, const struct llava_gemm_team * team);
    bool   (*wants_attention)(const struct llava_gemm_attention * attention);
    size_t (*attention_work)(const struct llava_gemm_attention * attention, int32_t threads);
    bool   (*attention)(const struct llava_gemm_attention * attention, const struct llava_gemm_team * team);
};

// once per process, before any graph is computed; LLAVA_STATUS_FAILED where the build has no hook
int32_t llava_gemm_install(const struct llava_gemm_table * table);

//
// projector
//

enum llava_clip_layout {
    LLAVA_CLIP_LAYOUT_REFERENCE = 0, // class token first, depth as the authors meant it (llama.cpp#25814, #25817)
    LLAVA_CLIP_LAYOUT_UPSTREAM  = 1, // whatever libmtmd computes
};

struct llava_projector_params {
    bool    use_gpu;
    bool    warmup;
    int32_t n_threads;
    int32_t flash_attn;       // enum llama_flash_attn_type
    int32_t image_min_tokens; // <= 0: from the file
    int32_t image_max_tokens; // <= 0: from the file
    int32_t batch_max_tokens; // upper bound of visual tokens encoded together
    int32_t clip_layout;      // enum llava_clip_layout

    mtmd_progress_callback progress; // returning false stops the load
    void *                 progress_user_data;

    ggml_backend_sched_eval_callback eval; // sees every graph node, for per-layer reports
    void *                           eval_user_data;
};

struct llava_projector; // mtmd_context + threadpool + layout

struct llava_projector_params llava_projector_params_default(void);
int32_t llava_projector_load(const char * path, const struct llama_model * model, const struct llava_projector_params * params,
                             struct llava_projector ** out);
void    llava_projector_free(struct llava_projector * projector);

struct llava_projector_info {
    char    type[64];         // name of the vision projector type as in clip.projector_type, empty without vision
    bool    has_vision;
    bool    has_audio;
    bool    use_mrope;
    bool    use_non_causal;   // images need bidirectional attention in the decoder
    bool    support_batch;
    bool    has_class_token;
    bool    class_token_moved; // layout corrected: the class token stands, and is counted, first
    int32_t n_embd_out;       // width of one output row
    int32_t n_embd;           // tower width
    int32_t n_ff;
    int32_t n_head;
    int32_t n_layer;          // layers stored
    int32_t n_layer_run;      // layers the graph runs, -1 where the graph decides for itself
    bool    depth_corrected;
    int32_t image_size;
    int32_t patch_size;
    int32_t n_merge;          // patches merged per side
    int32_t n_temporal_merge;
    int32_t image_min_pixels; // -1: fixed size
    int32_t image_max_pixels;
    int32_t image_max_tokens; // -1: fixed size
    int32_t flash_attn;       // in force after the warm-up
    float   image_mean[3];
    float   image_std[3];
};

int32_t llava_projector_get_info(const struct llava_projector * projector, struct llava_projector_info * info);

// switches flash attention of the tower off (for one retry in F32) or back; *previous receives what was in force
int32_t llava_projector_set_flash_attn(struct llava_projector * projector, int32_t flash_attn, int32_t * previous);

//
// prepared pictures
//

struct llava_prepared; // the chunks one picture turned into: markers (text) and tiles (image)

// rgb: ny rows of nx RGB pixels, or NULL for a placeholder that only counts tokens
// n_tokens_before, image_index: place of the picture in the prompt; two model families depend on it
int32_t llava_prepare(const struct llava_projector * projector, const uint8_t * rgb, uint32_t nx, uint32_t ny,
                      size_t n_tokens_before, uint32_t image_index, struct llava_prepared ** out);
void    llava_prepared_free(struct llava_prepared * prepared);
size_t  llava_prepared_n_chunks(const struct llava_prepared * prepared);

enum llava_chunk_kind {
    LLAVA_CHUNK_TEXT  = 0,
    LLAVA_CHUNK_IMAGE = 1,
};

enum llava_pos_kind {
    LLAVA_POS_NORMAL   = 0, // one position per token
    LLAVA_POS_MROPE    = 1, // t, y, x
    LLAVA_POS_HUNYUAN  = 2, // XD-RoPE with BOI, row breaks, EOI inside the chunk
};

struct llava_chunk_info {
    int32_t             kind;
    const llama_token * tokens;   // text chunks only
    size_t              n_tokens; // tokens, or embedding rows
    int32_t             n_pos;    // positions the chunk advances by
    int32_t             pos_kind;
    bool                non_causal;
    bool                placeholder;
    uint32_t            grid_x;      // columns and rows of cells; 0, 0 where the layout is not a grid
    uint32_t            grid_y;
    uint32_t            row_breaks;  // separator rows after each grid row inside the chunk (0 or 1); the last may lack it
    uint32_t            n_lead;      // rows before the grid (BOI)
    uint32_t            n_trail;     // rows after it (EOI)
    size_t              n_tiles;     // preprocessed images in the chunk
};

int32_t llava_prepared_chunk(const struct llava_prepared * prepared, size_t chunk, struct llava_chunk_info * info);

struct llava_tile_info {
    uint32_t      nx;
    uint32_t      ny;
    bool          add_viewsep;
    bool          add_newline;
    int32_t       lead_pad;
    int32_t       grid_x; // anyres grid, 0 = not tiled
    int32_t       grid_y;
    int32_t       orig_nx;
    int32_t       orig_ny;
    const float * data;   // ny rows of nx normalised RGB pixels, NULL for a placeholder
    size_t        n_data;
};

int32_t llava_prepared_tile(const struct llava_prepared * prepared, size_t chunk, size_t tile, struct llava_tile_info * info);

// writes n_tokens x 4 positions, token-major, in the order the decoder takes them (t, y, x, z), the first token being at pos_0
int32_t llava_prepared_positions(const struct llava_prepared * prepared, size_t chunk, llama_pos pos_0, llama_pos * out, size_t n_out);

//
// encoding
//

struct llava_chunk_ref {
    const struct llava_prepared * prepared;
    size_t                        chunk;
};

// Encodes refs[0 .. *n_taken) in one pass: always the first, and as many of the next as the projector can take with it.
// Rows are written one chunk after the other. n_out is the room in floats and must hold all refs.
// abort: polled by the CPU back-end between graph nodes; returning true stops the pass with LLAVA_STATUS_CANCELLED.
int32_t llava_encode(struct llava_projector * projector, const struct llava_chunk_ref * refs, size_t n_refs, float * out,
                     size_t n_out, ggml_abort_callback abort, void * abort_user_data, size_t * n_taken);

#ifdef LLAVA_PARITY
// test oracle: upstream's own way of decoding, see mtmd-helper.h
int32_t llava_parity_eval(struct llava_projector * projector, struct llama_context * ctx, const char * const * texts,
                          const uint8_t * const * rgbs, const uint32_t * nx, const uint32_t * ny, size_t n_images,
                          bool add_special, int32_t n_batch, llama_pos * n_past);
// test oracle: upstream's image decoder; *rgb is freed with llava_parity_free
int32_t llava_parity_decode(const uint8_t * bytes, size_t len, uint8_t ** rgb, uint32_t * nx, uint32_t * ny);
void    llava_parity_free(void * p);
// test oracle: mtmd_encode_chunk on one chunk
int32_t llava_parity_encode(struct llava_projector * projector, const struct llava_prepared * prepared, size_t chunk, float * out, size_t n_out);
#endif

// throws inside the guard: lets a test prove that nothing crosses the border (0: std::exception, 1: int, 2: bad_alloc)
int32_t llava_test_throw(int32_t what);

#ifdef __cplusplus
}
#endif

#endif // LLAVA_SHIM_H

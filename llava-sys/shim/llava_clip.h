// What the shim needs from inside clip_ctx. Internal to llava-sys.
#pragma once

#include "clip.h"

struct ggml_threadpool;

// attaches (or, with NULL, detaches) a threadpool to the tower's CPU back-end
bool llava_clip_set_threadpool(clip_ctx * ctx, ggml_threadpool * pool);

// sets (or, with NULL, clears) the callback that stops a graph on the CPU back-end
bool llava_clip_set_abort(clip_ctx * ctx, ggml_abort_callback callback, void * user_data);

bool llava_clip_has_class_token(const clip_ctx * ctx);

// true where models/llava.cpp builds the graph and one of its linear projectors follows
bool llava_clip_is_llava_graph(const clip_ctx * ctx);

// true where the graph appends the class token and adds the position table row by row (models/internvl.cpp, cogvlm.cpp)
bool llava_clip_appends_class_token(const clip_ctx * ctx);

// turns the position table so that its first row, the class token's, becomes its last; false where it has no such row
bool llava_clip_turn_positions(clip_ctx * ctx);

// makes the graph stop after n layers and take that layer's output; only for llava graphs
void llava_clip_set_feature_layer(clip_ctx * ctx, int n);

int  llava_clip_get_flash_attn(const clip_ctx * ctx);
void llava_clip_set_flash_attn(clip_ctx * ctx, int flash_attn);

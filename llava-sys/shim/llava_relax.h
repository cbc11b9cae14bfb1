// Included before ggml's C sources by the compiler's command line. ggml's threads wait for each other by spinning; on a machine
// with other work, a thread that spins for one that is not running keeps it from running. So every now and then the wait gives
// its time slice away. The pause in between, and everything on an idle machine, stays as it was.
#if defined(__x86_64__) && !defined(__cplusplus) && (defined(__GNUC__) || defined(__clang__)) && !defined(_WIN32)

#include <immintrin.h>
#include <sched.h>

static inline void llava_relax(void) {
    static _Thread_local unsigned int n_waits;
    n_waits++;
    if (n_waits % 1024 == 0) {
        sched_yield();
    } else {
        __builtin_ia32_pause();
    }
}

#define _mm_pause() llava_relax()

#endif

// How a call crosses the border between C++ and Rust: whatever is thrown becomes a status and a text. Internal to llava-sys.
#pragma once

#include "llava_shim.h"

#include <exception>
#include <new>

// keeps the text for llava_last_error() and returns the status
int32_t llava_fail(llava_status status, const char * text) noexcept;

// runs f, turning whatever it throws into a status
template <typename F> static int32_t guard(F && f) noexcept {
    try {
        return f();
    } catch (const std::bad_alloc &) {
        return llava_fail(LLAVA_STATUS_EXCEPTION, "out of memory");
    } catch (const std::exception & e) {
        return llava_fail(LLAVA_STATUS_EXCEPTION, e.what());
    } catch (...) {
        return llava_fail(LLAVA_STATUS_EXCEPTION, "an exception that is no std::exception");
    }
}

#define REQUIRE(cond)                                                           \
    do {                                                                        \
        if (!(cond)) {                                                          \
            return llava_fail(LLAVA_STATUS_ARGUMENT, "argument check: " #cond); \
        }                                                                       \
    } while (0)

// Converts exceptions of the standard library to a Status at the engine's boundary.
#ifndef DE_CORE_ENGINE_GUARD_H_
#define DE_CORE_ENGINE_GUARD_H_

#include <exception>
#include <new>
#include <string>

#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// Returns a Status with `text`. If there is no memory for the text, uses a short one that needs
/// none.
inline Status FailedWith(Code code, const char* text) noexcept {
  try {
    return {code, text};
  } catch (const std::bad_alloc&) {
    return {code, "out of memory"};
  }
}

/// Runs `verb`, a function that returns a Status. Converts its exceptions to a Status.
template <typename Verb>
Status Guarded(const Verb& verb) noexcept {
  try {
    return verb();
  } catch (const std::bad_alloc&) {
    return FailedWith(
        Code::kResourceExhausted,
        "the table ran out of memory: give the process more, or bound the table's size");
  } catch (const std::exception& error) {
    return FailedWith(Code::kInternal, error.what());
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_GUARD_H_

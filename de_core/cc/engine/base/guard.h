// The engine's boundary: what the standard library throws becomes a Status.
#ifndef DE_CORE_ENGINE_GUARD_H_
#define DE_CORE_ENGINE_GUARD_H_

#include <exception>
#include <new>
#include <string>

#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// A Status with `text`, or with a short text that takes no memory where there is none.
inline Status FailedWith(Code code, const char* text) noexcept {
  try {
    return {code, text};
  } catch (const std::bad_alloc&) {
    return {code, "out of memory"};
  }
}

/// Runs `verb`, which returns a Status.
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

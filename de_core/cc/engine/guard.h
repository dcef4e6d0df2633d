// The engine's boundary: what the standard library throws becomes a Status.
#ifndef DE_CORE_ENGINE_GUARD_H_
#define DE_CORE_ENGINE_GUARD_H_

#include <exception>
#include <new>
#include <string>

#include "de_core/cc/engine/status.h"

namespace de::engine {

/// Runs `verb`, which returns a Status.
template <typename Verb>
Status Guarded(const Verb& verb) noexcept {
  try {
    return verb();
  } catch (const std::bad_alloc&) {
    return Status::ResourceExhausted(
        "the table ran out of memory: give the process more, or bound the table's size");
  } catch (const std::exception& error) {
    return Status::Internal(error.what());
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_GUARD_H_

// Random numbers that nobody outside of the process can guess.
#ifndef DE_CORE_ENGINE_RANDOM_WORD_H_
#define DE_CORE_ENGINE_RANDOM_WORD_H_

#include <cstdint>

namespace de::engine {

/// Returns a new random word from the operating system. If the system has no entropy yet, computes
/// one from the clock and an address instead.
uint64_t RandomWord() noexcept;

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RANDOM_WORD_H_

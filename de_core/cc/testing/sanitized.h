// kSanitized: true if the tests are compiled with a sanitizer, which makes them some ten times
// slower.
#ifndef DE_CORE_TESTING_SANITIZED_H_
#define DE_CORE_TESTING_SANITIZED_H_

namespace de::engine {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace de::engine

#endif  // DE_CORE_TESTING_SANITIZED_H_

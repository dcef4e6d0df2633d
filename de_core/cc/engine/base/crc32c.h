// CRC-32C (Castagnoli), the checksum of every snapshot block.
#ifndef DE_CORE_ENGINE_CRC32C_H_
#define DE_CORE_ENGINE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace de::engine {

/// Extends a checksum by data[0, size). `crc` is the checksum of the bytes before `data`, 0 if
/// there are none. Uses the processor's instruction for it, if there is one.
uint32_t Crc32cExtend(uint32_t crc, const void* data, size_t size) noexcept;

/// Like Crc32cExtend, without the processor's instruction. For tests.
uint32_t Crc32cExtendPortable(uint32_t crc, const void* data, size_t size) noexcept;

inline uint32_t Crc32c(const void* data, size_t size) noexcept {
  return Crc32cExtend(0, data, size);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_CRC32C_H_

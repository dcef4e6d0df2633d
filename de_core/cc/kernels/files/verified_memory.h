// Remembers the mapped files that this process has verified, so that a version whose base another
// loaded version has does not read the base again.
#ifndef DE_CORE_KERNELS_VERIFIED_MEMORY_H_
#define DE_CORE_KERNELS_VERIFIED_MEMORY_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace de::kernels {

/// Device, inode, bytes, and time of the last change in nanoseconds. Names the contents of a mapped
/// file: while it is mapped, no other file gets its inode.
using FileIdentity = std::tuple<dev_t, ino_t, off_t, int64_t>;

/// The verified files of one served table. The process forgets them with this object. Thread-safe.
class VerifiedFiles {
 public:
  VerifiedFiles() = default;
  VerifiedFiles(const VerifiedFiles&) = delete;
  VerifiedFiles& operator=(const VerifiedFiles&) = delete;
  ~VerifiedFiles();

  /// Returns the identity of a local file, otherwise std::nullopt.
  static std::optional<FileIdentity> IdentityOf(const std::string& path);
  /// Returns true if any served table has verified the file.
  static bool Has(const FileIdentity& file);

  void Add(const FileIdentity& file);
  /// Makes all tables forget the files of this one, because one of them is damaged.
  void Distrust() const noexcept;

 private:
  std::vector<FileIdentity> own_;
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_VERIFIED_MEMORY_H_

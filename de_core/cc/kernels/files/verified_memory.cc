#include "de_core/cc/kernels/files/verified_memory.h"

#include <sys/stat.h>

#include <mutex>
#include <set>

namespace de::kernels {
namespace {

/// Never destroyed, because served tables may outlive static objects.
struct VerifiedRegistry {
  std::mutex mutex;
  std::multiset<FileIdentity> files;  ///< once for each table that has the file
};

VerifiedRegistry& AllVerified() {
  static VerifiedRegistry* const registry = new VerifiedRegistry;
  return *registry;
}

}  // namespace

VerifiedFiles::~VerifiedFiles() {
  VerifiedRegistry& registry = AllVerified();
  const std::lock_guard<std::mutex> guard(registry.mutex);
  for (const FileIdentity& file : own_) {
    const auto found = registry.files.find(file);
    if (found != registry.files.end()) registry.files.erase(found);
  }
}

std::optional<FileIdentity> VerifiedFiles::IdentityOf(const std::string& path) {
  struct stat found;
  if (::stat(path.c_str(), &found) != 0) return std::nullopt;
  return FileIdentity{found.st_dev, found.st_ino, found.st_size,
                      int64_t{found.st_mtim.tv_sec} * 1000000000 + found.st_mtim.tv_nsec};
}

bool VerifiedFiles::Has(const FileIdentity& file) {
  VerifiedRegistry& registry = AllVerified();
  const std::lock_guard<std::mutex> guard(registry.mutex);
  return registry.files.count(file) != 0;
}

void VerifiedFiles::Add(const FileIdentity& file) {
  VerifiedRegistry& registry = AllVerified();
  own_.push_back(file);  // first: a file that is only here is harmless
  const std::lock_guard<std::mutex> guard(registry.mutex);
  registry.files.insert(file);
}

void VerifiedFiles::Distrust() const noexcept {
  VerifiedRegistry& registry = AllVerified();
  const std::lock_guard<std::mutex> guard(registry.mutex);
  for (const FileIdentity& file : own_) registry.files.erase(file);
}

}  // namespace de::kernels

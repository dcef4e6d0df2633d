#include "de_core/cc/engine/tier/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace de::engine {
namespace {

// The standard library's functions for folders need a newer libstdc++ than TensorFlow's wheels do.

/// Creates a folder and its parents. Returns 0 or the number of the error.
int MakeFolder(const std::string& path) {
  int error = 0;
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    error = mkdir(path.substr(0, end).c_str(), 0777) == 0 || errno == EEXIST ? 0 : errno;
  }
  return error;
}

/// Removes the files of rows in a folder. Returns 0 or the number of the error.
int RemoveFiles(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(folder.c_str()), closedir);
  if (opened == nullptr) return errno;
  int error = 0;
  for (;;) {
    errno = 0;
    const dirent* const entry = readdir(opened.get());
    if (entry == nullptr) return errno != 0 ? errno : error;
    const std::string name = entry->d_name;
    if (name.rfind(kRowFiles, 0) != 0) continue;
    if (unlink((folder + "/" + name).c_str()) != 0) error = errno;
  }
}

}  // namespace

Status FolderDisk::Open(const std::string& folder, uint32_t depth, bool use_ring,
                        std::shared_ptr<Disk>* disk) {
  const auto failed = [&](int error) {
    return Status::InvalidArgument(
        "the directory of a tier must be a directory that this process can write to. Received: " +
        folder + ": " + std::strerror(error));
  };
  const std::shared_ptr<FolderDisk> made(new FolderDisk(depth, use_ring));
  const int not_made = MakeFolder(folder);
  if (not_made != 0) return failed(not_made);
  made->lock_file_ = open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (made->lock_file_ < 0) return failed(errno);
  if (flock(made->lock_file_, LOCK_EX | LOCK_NB) != 0) {
    return Status::FailedPrecondition(
        "one table at a time must use the directory of a tier; give each table, and each "
        "process, a directory of its own. Received: " +
        folder + ", which is in use");
  }
  const int not_removed = RemoveFiles(folder);
  if (not_removed != 0) return failed(not_removed);
  *disk = made;
  return Status::Ok();
}

FolderDisk::~FolderDisk() {
  if (lock_file_ < 0) return;
  // A forked process that is still there shares the lock.
  if (!fork_.forked()) flock(lock_file_, LOCK_UN);
  close(lock_file_);
}

int FolderDisk::Create(const std::string& path, int* file) noexcept {
  const char* const name = path.c_str();
  const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  *file = -1;
#if defined(O_DIRECT)
  *file = open(name, flags | O_DIRECT, 0644);
  if (*file < 0 && errno == EINVAL) unlink(name);  // created, but not opened
#endif
  if (*file < 0) *file = open(name, flags, 0644);  // such as on tmpfs
  return *file < 0 ? errno : 0;
}

int FolderDisk::Write(int file, const char* from, size_t bytes, uint64_t offset) noexcept {
  for (size_t done = 0; done < bytes;) {
    const ssize_t wrote =
        pwrite(file, from + done, bytes - done, static_cast<off_t>(offset + done));
    if (wrote > 0) {
      done += static_cast<size_t>(wrote);
    } else if (wrote == 0 || errno != EINTR) {
      return wrote == 0 ? ENOSPC : errno;
    }
  }
  return 0;
}

void FolderDisk::Remove(int file, const std::string& path) noexcept {
  close(file);
  if (!fork_.forked()) unlink(path.c_str());
}

}  // namespace de::engine

#include "de_core/cc/kernels/files/chain_file.h"

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "de_core/cc/kernels/files/env_stream.h"

namespace de::kernels {
namespace {

constexpr absl::string_view kChain = "de_core chain 1";
constexpr absl::string_view kManifest = "de_core manifest 1";
/// in the version's directory
constexpr absl::string_view kManifestName = "assets.extra/de_manifest";
constexpr uint64_t kMostBytes = uint64_t{1} << 20;

/// Returns the part of a path up to its last slash.
std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

absl::Status NotAsWritten(const std::string& path, absl::string_view first,
                          const std::string& why) {
  const absl::string_view lines = first == kChain ? "a line 'ID NAME' for each snapshot file"
                                                  : "a line 'ID COUNT NAME' for each chain file";
  return absl::DataLossError(
      absl::StrCat(path, ": the file must consist of the line '", first, "', ", lines,
                   ", and 'end COUNT' with the number of these lines. Received: ", why,
                   ". Copy the version again, or publish it again"));
}

/// Reads a file that begins with the line `first` and ends with 'end COUNT'. `lines` receives the
/// COUNT lines between them. Clears `is_one` and returns OK if the file begins with another line.
absl::Status ReadLines(tensorflow::Env* env, const std::string& path, absl::string_view first,
                       std::vector<std::string>* lines, bool* is_one) {
  std::unique_ptr<FileSource> source;
  TF_RETURN_IF_ERROR(FileSource::Open(env, path, &source));
  std::string text(std::min<uint64_t>(source->size(), first.size() + 1), '\0');
  TF_RETURN_IF_ERROR(InFile(path, source->Read(0, text.size(), text.data())));
  *is_one = text == absl::StrCat(first, "\n");
  if (!*is_one) return absl::OkStatus();
  if (source->size() > kMostBytes) {
    return NotAsWritten(path, first, absl::StrCat(source->size(), " bytes"));
  }
  text.resize(source->size());
  TF_RETURN_IF_ERROR(InFile(path, source->Read(0, text.size(), text.data())));
  *lines = absl::StrSplit(text, '\n');
  const bool is_whole = lines->size() >= 3 && lines->back().empty();
  const std::string last = is_whole ? lines->end()[-2] : "";
  uint64_t count = 0;
  if (!absl::StartsWith(last, "end ") || !absl::SimpleAtoi(last.substr(4), &count)) {
    return NotAsWritten(path, first,
                        absl::StrCat(text.size(), " bytes that do not end with 'end COUNT'"));
  }
  lines->erase(lines->begin());
  lines->resize(lines->size() - 2);
  if (count != lines->size() || lines->empty()) {
    return NotAsWritten(path, first, absl::StrCat("'", last, "' after ", lines->size(), " lines"));
  }
  return absl::OkStatus();
}

absl::Status ParseEntry(const std::string& path, absl::string_view line, ServedFile* file) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(line, absl::MaxSplits(' ', 1));
  engine::SnapshotId id;
  if (!engine::IdOf(std::string_view(parts.first.data(), parts.first.size()), &id) ||
      parts.second.empty() || absl::StrContains(parts.second, '/')) {
    return NotAsWritten(path, kChain, absl::StrCat("the line '", line, "'"));
  }
  *file = {absl::StrCat(FolderOf(path), parts.second), id};
  return absl::OkStatus();
}

/// Returns an error unless the version's manifest names a chain file with this number of files,
/// and with this id of the last one.
absl::Status CheckManifest(tensorflow::Env* env, const std::string& path, size_t count,
                           const engine::SnapshotId& last) {
  const std::string folder = FolderOf(path);
  const std::string manifest = absl::StrCat(
      folder.empty() ? "../" : FolderOf(folder.substr(0, folder.size() - 1)), kManifestName);
  std::vector<std::string> lines;
  bool is_one = false;
  const absl::Status read = ReadLines(env, manifest, kManifest, &lines, &is_one);
  if (absl::IsNotFound(read)) {
    return absl::DataLossError(
        absl::StrCat(path, ": a published version must have its manifest. Received: no file ",
                     manifest, ". Copy the whole version again, or publish it again"));
  }
  TF_RETURN_IF_ERROR(read);
  if (!is_one) return NotAsWritten(manifest, kManifest, "another first line");
  const std::string name = path.substr(folder.size());
  const std::string own = absl::StrCat(engine::HexOf(last), " ", count, " ", name);
  if (std::find(lines.begin(), lines.end(), own) != lines.end()) return absl::OkStatus();
  std::string due = "no such chain file";
  for (const std::string& line : lines) {
    if (absl::EndsWith(line, absl::StrCat(" ", name))) due = line;
  }
  return absl::DataLossError(absl::StrCat(
      path,
      ": the chain must be the one in the version's manifest: id of the last file, number of "
      "files, name. Received: '",
      own, "', and in the manifest '", due,
      "'. Copy the whole version again, or publish it again"));
}

}  // namespace

absl::Status AppendServedFiles(tensorflow::Env* env, const std::string& path,
                               std::vector<ServedFile>* files) {
  std::vector<std::string> lines;
  bool is_chain = false;
  TF_RETURN_IF_ERROR(ReadLines(env, path, kChain, &lines, &is_chain));
  if (!is_chain) {
    files->push_back({path, std::nullopt});
    return absl::OkStatus();
  }
  for (const std::string& line : lines) {
    TF_RETURN_IF_ERROR(ParseEntry(path, line, &files->emplace_back()));
  }
  return CheckManifest(env, path, lines.size(), *files->back().id);
}

}  // namespace de::kernels

// Serves the newest version of a model from many threads while versions change, as TensorFlow
// Serving does: the same loader, one session per version, and the old version is freed after its
// last request.
//
//   model_versions ROOT SIGNATURE IDS [--threads 4] [--seconds 5]
//
// ROOT holds numbered SavedModels; IDS are comma-separated integers or strings. Prints one line of
// JSON: requests and errors, and for each version its requests, its first answer, and the error of
// loading it.
#include <dirent.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/public/session.h"
#include "tensorflow/core/public/session_options.h"

namespace {

using Clock = std::chrono::steady_clock;
using tensorflow::Tensor;

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += (static_cast<unsigned char>(c) < 0x20) ? ' ' : c;
  }
  return quoted + '"';
}

/// One loaded version. The last thread that uses it frees it.
struct Version {
  int64_t number = 0;
  tensorflow::SavedModelBundle bundle;
  std::vector<std::pair<std::string, Tensor>> feeds;
  std::vector<std::string> fetches;

  ~Version() {
    if (bundle.session != nullptr) bundle.session->Close().IgnoreError();
  }
};

/// The report on one version.
struct Report {
  std::string load_error;
  std::string first_answer;
  int64_t requests = 0;  ///< that it answered
};

Tensor IdsTensor(const std::string& ids, tensorflow::DataType dtype) {
  std::vector<std::string> parts;
  std::istringstream stream(ids);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  Tensor tensor(dtype, tensorflow::TensorShape({static_cast<int64_t>(parts.size())}));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (dtype == tensorflow::DT_STRING) {
      tensor.vec<tensorflow::tstring>()(i) = parts[i];
    } else if (dtype == tensorflow::DT_INT32) {
      tensor.vec<int32_t>()(i) = std::atoi(parts[i].c_str());
    } else {
      tensor.vec<int64_t>()(i) = std::atoll(parts[i].c_str());
    }
  }
  return tensor;
}

absl::Status Load(const std::string& root, int64_t number, const std::string& signature,
                  const std::string& ids, std::shared_ptr<Version>* loaded) {
  auto version = std::make_shared<Version>();
  version->number = number;
  const absl::Status status =
      tensorflow::LoadSavedModel(tensorflow::SessionOptions(), tensorflow::RunOptions(),
                                 root + "/" + std::to_string(number), {"serve"}, &version->bundle);
  if (!status.ok()) return status;
  const auto& signatures = version->bundle.GetSignatures();
  const auto found = signatures.find(signature);
  if (found == signatures.end()) return absl::NotFoundError("no signature " + signature);
  for (const auto& input : found->second.inputs()) {
    version->feeds.emplace_back(input.second.name(), IdsTensor(ids, input.second.dtype()));
  }
  for (const auto& output : found->second.outputs()) {
    if (output.first == "embeddings") version->fetches.push_back(output.second.name());
  }
  *loaded = std::move(version);
  return absl::OkStatus();
}

int64_t NewestVersion(const std::string& root) {
  int64_t newest = -1;
  DIR* directory = opendir(root.c_str());
  if (directory == nullptr) return newest;
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (!name.empty() && std::all_of(name.begin(), name.end(), ::isdigit)) {
      newest = std::max<int64_t>(newest, std::atoll(name.c_str()));
    }
  }
  closedir(directory);
  return newest;
}

std::string Json(const Tensor& tensor) {
  std::ostringstream text;
  text.precision(9);
  const auto values = tensor.flat<float>();
  text << '[';
  for (int64_t i = 0; i < values.size(); ++i) text << (i == 0 ? "" : ", ") << values(i);
  text << ']';
  return text.str();
}

class Server {
 public:
  Server(std::string root, std::string signature, std::string ids)
      : root_(std::move(root)), signature_(std::move(signature)), ids_(std::move(ids)) {}

  /// Loads the newest version if it does not serve yet. A version that fails to load is ignored.
  void Refresh() {
    const int64_t newest = NewestVersion(root_);
    if (newest < 0 || newest == tried_) return;
    tried_ = newest;
    std::shared_ptr<Version> loaded;
    const absl::Status status = Load(root_, newest, signature_, ids_, &loaded);
    const std::lock_guard<std::mutex> lock(mutex_);
    reports_[newest].load_error = std::string(status.message());
    if (status.ok()) current_ = std::move(loaded);  // the old version's last request frees it
  }

  std::shared_ptr<Version> Current() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return current_;
  }

  void Ask() {
    const std::shared_ptr<Version> version = Current();
    std::vector<Tensor> answers;
    const absl::Status status =
        version->bundle.session->Run(version->feeds, version->fetches, {}, &answers);
    const std::string answer = status.ok() ? Json(answers.at(0)) : "";
    const std::lock_guard<std::mutex> lock(mutex_);
    ++requests_;
    if (!status.ok()) {
      ++failed_;
      return;
    }
    Report& report = reports_[version->number];
    ++report.requests;
    if (report.first_answer.empty()) report.first_answer = answer;
    if (report.first_answer != answer) ++mixed_;
  }

  void Print() {
    std::cout << "{\"requests\": " << requests_ << ", \"failed\": " << failed_
              << ", \"mixed\": " << mixed_ << ", \"versions\": {";
    std::string separator;
    for (const auto& [number, report] : reports_) {
      std::cout << separator << '"' << number
                << "\": {\"load_error\": " << Quoted(report.load_error)
                << ", \"requests\": " << report.requests << ", \"embeddings\": "
                << (report.first_answer.empty() ? "null" : report.first_answer) << '}';
      separator = ", ";
    }
    std::cout << "}}" << std::endl;
  }

 private:
  const std::string root_, signature_, ids_;
  int64_t tried_ = -1;
  std::mutex mutex_;
  std::shared_ptr<Version> current_;
  std::map<int64_t, Report> reports_;
  int64_t requests_ = 0, failed_ = 0, mixed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: model_versions ROOT SIGNATURE IDS [--threads 4] [--seconds 5]\n";
    return 2;
  }
  int threads = 4;
  double seconds = 5;
  for (int i = 4; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--threads") threads = std::atoi(argv[i + 1]);
    if (option == "--seconds") seconds = std::atof(argv[i + 1]);
  }
  Server server(argv[1], argv[2], argv[3]);
  server.Refresh();
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const auto over = [&] { return Clock::now() >= end; };
  std::vector<std::thread> clients;
  if (server.Current() != nullptr) {
    for (int i = 0; i < threads; ++i) {
      clients.emplace_back([&] {
        while (!over()) server.Ask();
      });
    }
    while (!over()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      server.Refresh();
    }
  }
  for (std::thread& client : clients) client.join();
  server.Print();
  return server.Current() == nullptr ? 1 : 0;
}

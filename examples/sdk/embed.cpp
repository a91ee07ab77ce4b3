// Embed one sentence of token ids: embed minilm.svm 101 7592 2088 102
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

#include "svm.h"

using Program = std::unique_ptr<svm_program, decltype(&svm_close)>;

static Program open_program(const char *path) {
  svm_program *program;
  svm_error error;
  if (svm_open_path(path, nullptr, &program, &error)) throw std::runtime_error(error.message);
  return Program(program, svm_close);
}

static svm_value tensor(std::vector<int64_t> &ids) {
  svm_value value = {};
  value.tag = SVM_TAG_TENSOR;
  value.tensor.data = ids.data();
  value.tensor.dtype = SVM_DTYPE_I64;
  value.tensor.rank = 2;
  value.tensor.sizes[0] = 1;
  value.tensor.sizes[1] = static_cast<int64_t>(ids.size());
  return value;
}

static std::vector<float> embed(svm_program *program, std::vector<int64_t> ids) {
  std::vector<int64_t> mask(ids.size(), 1);
  svm_value inputs[] = {tensor(ids), tensor(mask)}, output;
  svm_error error;
  if (svm_call(program, svm_main_function(program), inputs, 2, nullptr, &output, 1, &error))
    throw std::runtime_error(error.message);
  const float *data = static_cast<const float *>(output.tensor.data); // [1, output.tensor.sizes[1]]
  std::vector<float> vector(data, data + output.tensor.sizes[1]);
  svm_value_release(&output);
  return vector;
}

int main(int argc, char **argv) try {
  if (argc < 3) return std::fprintf(stderr, "usage: embed MODEL.svm ID ...\n"), 2;
  Program program = open_program(argv[1]);
  std::vector<int64_t> ids;
  for (int i = 2; i < argc; i++) ids.push_back(std::atoll(argv[i]));
  for (float x : embed(program.get(), ids)) std::printf("%.9g\n", x);
  return 0;
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

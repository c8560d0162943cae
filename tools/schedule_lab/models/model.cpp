#include "models/model.hpp"

#include "models/builders.hpp"

#include <stdexcept>

namespace param_sync::models {
namespace {

struct Entry {
  const char* name;
  Model (*make)();
};

const Entry kModels[] = {{"vgg16", vgg16}, {"vgg19-22k", vgg19_22k}, {"resnet50", resnet50}, {"gpt2", gpt2}};

}  // namespace

double Model::parameters() const {
  double sum = 0;
  for (const Layer& layer : layers) sum += layer.parameters;
  return sum;
}

int Model::tensors() const {
  int sum = 0;
  for (const Layer& layer : layers) sum += layer.tensors;
  return sum;
}

double Model::forward_flops() const {
  double sum = 0;
  for (const Layer& layer : layers) sum += layer.forward_flops;
  return sum;
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : kModels) all.emplace_back(entry.name);
    return all;
  }();
  return names;
}

Model model(const std::string& name) {
  std::string names;
  for (const Entry& entry : kModels) {
    if (name == entry.name) {
      Model made = entry.make();
      made.name = name;
      return made;
    }
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw std::invalid_argument("there is no model \"" + name + "\"; there are: " + names);
}

}  // namespace param_sync::models

// Values in Prometheus' families, one after the other as they are added.
#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>
#include <prometheus/text_serializer.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tp2::server {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class MetricFamilies {
 public:
  // One value of a family; the family is begun when its name is not that of the value before. The
  // help of later values of a family is not used.
  void Counter(const std::string& name, const std::string& help, const MetricLabels& labels,
               uint64_t value) {
    Add(prometheus::MetricType::Counter, name, help, labels, static_cast<double>(value));
  }
  void Gauge(const std::string& name, const std::string& help, const MetricLabels& labels,
             double value) {
    Add(prometheus::MetricType::Gauge, name, help, labels, value);
  }
  // A family that somebody else collected.
  void AddFamily(prometheus::MetricFamily family) { families_.push_back(std::move(family)); }

  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  void Add(prometheus::MetricType type, const std::string& name, const std::string& help,
           const MetricLabels& labels, double value) {
    if (families_.empty() || families_.back().name != name) {
      families_.push_back({.name = name, .help = help, .type = type, .metric = {}});
    }
    prometheus::ClientMetric metric;
    for (const auto& [key, text] : labels) metric.label.push_back({key, text});
    metric.counter.value = metric.gauge.value = value;
    families_.back().metric.push_back(metric);
  }

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace tp2::server

// What the admin port says: /metrics (Prometheus), /healthz (the STEP loop moves), /readyz (a STEP
// succeeded lately), /status (JSON), /trace (Chrome trace of the last STEPs) and a page for people.
#pragma once

#include <string>

#include "libcore/server/admin_http.h"
#include "libcore/server/step_server.h"
#include "libcore/telemetry/card_watch.h"

namespace tp2::server {

// What the pages know about the worker beside its server; fixed.
struct WorkerFacts {
  std::string model_dir;
  std::string backend;
  std::string mode;
  std::string listen;
  bool has_rdma = false;    // at the same address
  bool has_secret = false;  // whether, never which
};

class AdminPages {
 public:
  // `server` and `cards` outlive the pages. `cards`: null when nothing watches any.
  AdminPages(const StepServer* server, const WorkerFacts& facts,
             const telemetry::CardWatch* cards = nullptr)
      : server_(server), facts_(facts), cards_(cards) {}

  HttpResponse Answer(const std::string& path) const;

 private:
  HttpResponse Readiness() const;
  HttpResponse Liveness() const;
  std::string StatusJson() const;
  std::string Page() const;

  const StepServer* server_;
  const WorkerFacts facts_;
  const telemetry::CardWatch* cards_;
};

// `<` and its kin as entities.
std::string EscapeHtml(const std::string& text);

}  // namespace tp2::server

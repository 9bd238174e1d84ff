#include "libcore/contract/auth.h"

#include <string_view>

namespace tp2::contract {
namespace {

Proof Prove(const Secret& secret, std::string_view who, const Nonce& nonce, ByteView body) {
  return secret.Mac({std::as_bytes(std::span(who)), std::as_bytes(std::span(nonce)),
                     body.first(kHelloProofOffset)});
}

}  // namespace

Proof ClientProof(const Secret& secret, const Nonce& challenge, ByteView hello_body) {
  return Prove(secret, "DSPK/1 client", challenge, hello_body);
}

Proof WorkerProof(const Secret& secret, const Nonce& client_nonce, ByteView reply_body) {
  return Prove(secret, "DSPK/1 worker", client_nonce, reply_body);
}

}  // namespace tp2::contract

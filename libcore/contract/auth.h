// How both sides of HELLO prove that they hold the same secret, without sending it:
//
//   client  HELLO, nonce and proof zero
//   worker  CHALLENGE: 32 random bytes, good for this connection and one answer
//   client  HELLO with a nonce of its own and
//           proof = HMAC-SHA256(secret, "DSPK/1 client" | challenge | HELLO bytes 0..223)
//   worker  checks the proof before it looks at any other field, and answers with
//           proof = HMAC-SHA256(secret, "DSPK/1 worker" | client nonce | reply bytes 0..223)
//
// The HELLO bytes hold the client's uuid and nonce. What follows HELLO is neither encrypted nor
// signed: this keeps strangers out, it does not make an untrusted network a trusted one.
#pragma once

#include "libcore/base/secret.h"
#include "libcore/contract/codec.h"

namespace tp2::contract {

// `hello_body` is the encoded request, whose own proof bytes do not count.
Proof ClientProof(const Secret& secret, const Nonce& challenge, ByteView hello_body);
// `reply_body` is the encoded reply, whose own proof bytes do not count.
Proof WorkerProof(const Secret& secret, const Nonce& client_nonce, ByteView reply_body);

}  // namespace tp2::contract

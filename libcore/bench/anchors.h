// The anchors that benches draft after: a fixed sequence with the repetition of English prose. It
// is a paragraph of this repository's README and one of its CONTRIBUTING, lower case, one token per
// word and per punctuation mark, each word's number being a hash of its letters (StreamOf(0, word)
// modulo 129280): 441 tokens, 224 distinct, the comma 26 times and 166 of them once. Not a
// tokenizer's ids: what matters to time is how often tokens return, which uniform random ids get
// wrong.
#pragma once

#include <cstdint>
#include <span>

namespace tp2::bench {

// Ids below 129280, the vocabulary of V4.1-Flash.
std::span<const int32_t> AnchorTokens();

// Token `index` of the endless repetition of the sequence, modulo a smaller vocabulary.
int32_t AnchorAt(int64_t index, int vocab);

}  // namespace tp2::bench

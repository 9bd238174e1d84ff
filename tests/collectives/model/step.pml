/* The STEP property of the line protocol, searched in full: a STEP that succeeded on one rank was
 * refused by none, and no operation takes the payload of another. Two ranks run OPS operations and
 * the closing exchange, STEPS times; every wait may run out, every operation may refuse what it
 * received (a bad id), the host may cancel, a rank may die anywhere. A STEP that failed is followed
 * by a drained reset, as the host latch does it.
 *
 * -DOPS=n -DSTEPS=n   size
 * -DNO_MIRROR         a failed rank does not tell its peer: only slower, never wrong
 * Broken variants, each of which must give a counterexample:
 * -DNO_CLOSE          the STEP ends with its last operation
 * -DCLOSES_ANYWAY     a rank that refused still sends the closing exchange
 * -DKEEPS_EPOCH       a failed rank goes on storing, and its failed operation took no epoch
 */
#ifndef OPS
#define OPS 3
#endif
#ifndef STEPS
#define STEPS 2
#endif

typedef Slot {
  byte tag;  /* generation * 16 + epoch; 0 when cleared */
  byte from  /* which operation stored it: what the payload stands for */
}

typedef RankState {
  byte error;
  byte cancel;
  byte epoch;
  byte generation;
  Slot inbox[2]; /* by parity */
  bool refused;  /* an operation of this STEP */
  bool ok;       /* what the STEP said */
  bool done;
  bool go;
  bool dead
}

RankState rank[2];

#define MINE rank[me]
#define PEER rank[1 - me]
#define TAG (MINE.generation * 16 + MINE.epoch)
#define IS_CLOSE (op == OPS)

inline fail(own, theirs) {
  MINE.error = MINE.error | own;
#ifndef NO_MIRROR
  PEER.error = PEER.error | theirs;
#endif
  refuse()
}

inline refuse() {
  if
  :: !IS_CLOSE -> atomic { MINE.refused = true; assert(!PEER.ok) }
  :: else
  fi
}

inline die() {
  MINE.dead = true;
  goto gone
}

/* Whether an operation may begin. */
#if defined(KEEPS_EPOCH)
#define MAY_BEGIN (MINE.error == 0 || !IS_CLOSE)
#elif defined(CLOSES_ANYWAY)
#define MAY_BEGIN (MINE.error == 0 || IS_CLOSE)
#else
#define MAY_BEGIN (MINE.error == 0)
#endif

proctype Rank(byte me) {
  byte op;
  bool has_it;
end_idle:
  do
  :: MINE.go ->
    MINE.go = false;
    op = 0;
    do
    :: op == OPS + 1 -> break
    :: op < OPS + 1 ->
      has_it = false;
      if
      :: !MAY_BEGIN -> refuse()
      :: MAY_BEGIN && MINE.error == 0 && MINE.cancel != 0 -> fail(8, 8)
      :: MAY_BEGIN && (MINE.error != 0 || MINE.cancel == 0) ->
        MINE.epoch++;
        atomic { PEER.inbox[MINE.epoch % 2].tag = TAG; PEER.inbox[MINE.epoch % 2].from = op };
        do
        :: MINE.inbox[MINE.epoch % 2].tag == TAG ->
          assert(MINE.inbox[MINE.epoch % 2].from == op);
          if
          :: has_it = true
          :: !IS_CLOSE -> fail(4, 4)
          fi;
          break
        :: MINE.error != 0 -> refuse(); break
        :: MINE.cancel != 0 -> fail(8, 8); break
        :: fail(1, 2); break
        :: die()
        od;
#ifdef KEEPS_EPOCH
        if
        :: !has_it -> MINE.epoch--
        :: else
        fi;
#endif
      :: die()
      fi;
#ifdef NO_CLOSE
      if
      :: op == OPS - 1 -> break
      :: else
      fi;
#endif
      op++
    od;
    atomic {
#ifdef NO_CLOSE
      MINE.ok = (MINE.error == 0 && !MINE.refused);
#else
      MINE.ok = (has_it && (MINE.error == 0));
#endif
      assert(!(MINE.ok && PEER.refused));
      MINE.done = true
    }
  od;
gone:
  skip
}

/* The controller: starts both ranks, waits until both are idle, resets after a failure. A rank that
 * does not come back poisons the pair: nothing follows. */
init {
  byte step = 0;
  byte i;
  atomic { run Rank(0); run Rank(1) };
  do
  :: step == STEPS -> break
  :: step < STEPS ->
    atomic {
      i = 0;
      do
      :: i < 2 -> rank[i].refused = false; rank[i].ok = false; rank[i].done = false;
        rank[i].go = true; i++
      :: else -> break
      od
    };
    if
    :: rank[0].cancel = 1; rank[1].cancel = 1
    :: skip
    fi;
    if
    :: rank[0].done && rank[1].done
    :: (rank[0].dead || rank[0].done) && (rank[1].dead || rank[1].done) &&
       (rank[0].dead || rank[1].dead) -> break
    fi;
    if
    :: !rank[0].ok || !rank[1].ok || rank[0].cancel != 0 ->
      atomic {
        i = 0;
        do
        :: i < 2 -> rank[i].error = 0; rank[i].cancel = 0; rank[i].epoch = 0;
          rank[i].generation = (rank[i].generation + 1) % 16;
          rank[i].inbox[0].tag = 0; rank[i].inbox[1].tag = 0; i++
        :: else -> break
        od
      }
    :: else
    fi;
    step++
  od
}

; The thread pool: one per process, built from this text when the first parallel kernel is linked.
;
; pool.py appends sleep_futex.ll or sleep_pthread.ll (how threads sleep) and fills in the
; capital words after a dollar. Nothing here is thread-local: JIT linkers cannot do that.
;
; @owner  process id << 32 | busy. A launch takes the pool by CAS; a launch that finds it taken (another
;         thread is in it, or the caller is a body) runs inline. A foreign process id means that this
;         process was forked: the winner of the CAS starts afresh, with no workers.
; @gate   epoch << 32 | closed << 31 | workers that joined. epoch is a counter << 10 | workers wanted.
;         A store opens a job; a worker joins by CAS while the gate is open; the caller closes it when no
;         range is left, then waits only for those who joined. So a worker that the system did not
;         schedule in time delays nobody, and the fields of a job hold still while anyone reads them.
; @done   how many of those who joined have finished. @waiting: the caller sleeps until it changes.
; @ranges what nobody took yet of each one's range, by place in the team (the caller's is 0):
;         end << 32 | first, in units. @result: the first failure that a body returned.

%job = type { ptr, ptr, i64, i64, i64, i64 }          ; body, closure, n, workspace bytes, team, unit
%watch = type { i64, ptr, ptr, ptr, ptr, ptr, [3 x ptr] }  ; main thread, functions of CPython, what was raised
%slot = type { ptr, i64, i32, i32, [10 x i32] }       ; workspace, its bytes, thread id, epoch at start

@owner = internal global i64 0, align 128
@gate = internal global i64 0, align 128
@ranges = internal global [1024 x [16 x i64]] zeroinitializer, align 128 ; one a cache line pair
@done = internal global i32 0, align 128
@sleepers = internal global i32 0, align 128
@waiting = internal global i32 0, align 128
@result = internal global i32 0, align 128
@job = internal global %job zeroinitializer, align 128
@threads = internal global i32 1, align 128
@spin = internal global i32 0
@workers = internal global i32 0
@watch = internal global ptr null  ; %watch of the process; null: nothing interrupts a loop
; When the main thread last asked for signals, or a series of its launches began, and when the last
; of its launches ended.
@asked = internal global i64 0, align 128
@ended = internal global i64 0
@slots = internal global [1024 x %slot] zeroinitializer, align 128

declare i32 @getpid()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i32 @clock_gettime(i32, ptr)
declare i64 @pthread_self()
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare i32 @llvm.usub.sat.i32(i32, i32)

; ---- settings and state, for pool.py

define void @lw_pool_configure(i32 %threads, i32 %spin) {
  store atomic i32 %threads, ptr @threads monotonic, align 4
  store atomic i32 %spin, ptr @spin monotonic, align 4
  ret void
}

; Start workers until there are `want`. Returns how many there are, or -1 while the pool is busy.
define i32 @lw_pool_start(i32 %want) {
  %claimed = call i1 @claim()
  br i1 %claimed, label %own, label %busy
own:
  %have = call i32 @hire(i32 %want)
  call void @release()
  ret i32 %have
busy:
  ret i32 -1
}

; From now on the caller asks CPython between pieces of a long loop whether a signal was handled by an
; exception, as Ctrl-C is.
define void @lw_pool_watch(ptr %watch) {
  store atomic ptr %watch, ptr @watch release, align 8
  ret void
}

; System's id of a worker's thread, 0 until it runs.
define i32 @lw_pool_thread(i32 %index) {
  %place = getelementptr [1024 x %slot], ptr @slots, i64 0, i32 %index, i32 2
  %id = load atomic i32, ptr %place acquire, align 4
  ret i32 %id
}

; ---- launching

define i32 @lw_parallel_launch(ptr %body, ptr %closure, i64 %n, i64 %bytes, ptr %workspace) {
  %threads = load atomic i32, ptr @threads monotonic, align 4
  %rc = call i32 @lw_parallel_launch_n(ptr %body, ptr %closure, i64 %n, i64 %bytes, ptr %workspace, i32 %threads)
  ret i32 %rc
}

define i32 @lw_parallel_launch_n(ptr %body, ptr %closure, i64 %n, i64 %bytes, ptr %workspace, i32 %threads) {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %share, label %nothing
nothing:
  ret i32 0
share:
  %threads64 = zext i32 %threads to i64
  %useful = call i64 @llvm.umin.i64(i64 %threads64, i64 %n)
  %alone = icmp ule i64 %useful, 1
  br i1 %alone, label %inline, label %take
take:
  %claimed = call i1 @claim()
  br i1 %claimed, label %staff, label %inline
inline:
  %rc = call i32 %body(i64 0, i64 %n, ptr %closure, ptr %workspace)
  ret i32 %rc
staff:
  %useful32 = trunc i64 %useful to i32
  %want = sub i32 %useful32, 1
  %have = call i32 @hire(i32 %want)
  %short = icmp ult i32 %have, %want
  %helpers = select i1 %short, i32 %have, i32 %want
  %nobody = icmp eq i32 %helpers, 0
  br i1 %nobody, label %unstaffed, label %open
unstaffed:
  call void @release()
  br label %inline
open:
  %helpers64 = zext i32 %helpers to i64
  %team = add i64 %helpers64, 1
  store ptr %body, ptr @job
  store ptr %closure, ptr getelementptr (%job, ptr @job, i32 0, i32 1)
  store i64 %n, ptr getelementptr (%job, ptr @job, i32 0, i32 2)
  store i64 %bytes, ptr getelementptr (%job, ptr @job, i32 0, i32 3)
  store i64 %team, ptr getelementptr (%job, ptr @job, i32 0, i32 4)
  call void @share_out(i64 %n, i64 %team)
  store atomic i32 0, ptr @done monotonic, align 4
  store atomic i32 0, ptr @result monotonic, align 4
  %last = load atomic i64, ptr @gate monotonic, align 8
  %last_count = lshr i64 %last, 42
  %count = add i64 %last_count, 1
  %high = shl i64 %count, 42
  %low = shl i64 %helpers64, 32
  %opened = or i64 %high, %low
  %ignored = atomicrmw xchg ptr @gate, i64 %opened seq_cst
  %sleepers = load atomic i32, ptr @sleepers seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %work
wake:
  call void @wake_workers()
  br label %work
work:
  call void @drain(i64 0, ptr %workspace)
  %closed = atomicrmw or ptr @gate, i64 2147483648 seq_cst
  %joined64 = and i64 %closed, 2147483647
  %joined = trunc i64 %joined64 to i32
  call void @await_done(i32 %joined)
  call void @note_end()
  %outcome = load atomic i32, ptr @result acquire, align 4
  call void @release()
  ret i32 %outcome
}

define internal i1 @claim() {
entry:
  %pid = call i32 @getpid()
  %pid64 = zext i32 %pid to i64
  %free = shl i64 %pid64, 32
  %taken = or i64 %free, 1
  %now = load atomic i64, ptr @owner monotonic, align 8
  %busy = icmp eq i64 %now, %taken
  br i1 %busy, label %no, label %try
try:
  %swap = cmpxchg ptr @owner, i64 %now, i64 %taken acq_rel monotonic, align 8
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %yes, label %no
yes:
  %ours = icmp eq i64 %now, %free
  br i1 %ours, label %ready, label %reborn
reborn:
  call void @start_afresh()
  br label %ready
ready:
  ret i1 true
no:
  ret i1 false
}

define internal void @release() {
  %taken = load atomic i64, ptr @owner monotonic, align 8
  %free = and i64 %taken, -2
  store atomic i64 %free, ptr @owner release, align 8
  ret void
}

; First use in this process: whatever a parent left behind says nothing about our (missing) threads.
; A worker of the parent may have been replacing its workspace at that moment: forget, do not free.
define internal void @start_afresh() {
entry:
  store atomic i32 0, ptr @workers monotonic, align 4
  store atomic i32 0, ptr @sleepers monotonic, align 4
  store atomic i32 0, ptr @waiting monotonic, align 4
  store atomic i32 0, ptr @done monotonic, align 4
  call void @llvm.memset.p0.i64(ptr @slots, i8 0, i64 65536, i1 false)
  call void @reset_sleep()
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Have `want` workers if the system gives as many; returns how many there are.
define internal i32 @hire(i32 %want) {
entry:
  %thread = alloca i64
  %had = load atomic i32, ptr @workers monotonic, align 4
  br label %check
check:
  %have = phi i32 [ %had, %entry ], [ %more, %started ]
  %enough = icmp uge i32 %have, %want
  br i1 %enough, label %out, label %start
start:
  %slot = getelementptr [1024 x %slot], ptr @slots, i64 0, i32 %have
  %gate = load atomic i64, ptr @gate monotonic, align 8
  %epoch64 = lshr i64 %gate, 32
  %epoch = trunc i64 %epoch64 to i32
  %seen = getelementptr %slot, ptr %slot, i32 0, i32 3
  store i32 %epoch, ptr %seen
  %rc = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %slot)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %started, label %out
started:
  %id = load ptr, ptr %thread
  %detached = call i32 @pthread_detach(ptr %id)
  %more = add i32 %have, 1
  store atomic i32 %more, ptr @workers monotonic, align 4
  br label %check
out:
  ret i32 %have
}

; Give each member of a team its range of [0, n): the same share of each loop, so that it finds in
; its own caches what it wrote, or read, the last time. Ranges count in units of so many indices that
; their ends fit 32 bits.
define internal void @share_out(i64 %n, i64 %team) {
entry:
  %over = lshr i64 %n, 31
  %unit = add i64 %over, 1
  store i64 %unit, ptr getelementptr (%job, ptr @job, i32 0, i32 5)
  %n1 = add i64 %n, %over
  %units = udiv i64 %n1, %unit
  br label %next
next:
  %at = phi i64 [ 0, %entry ], [ %at1, %next ]
  %first = phi i64 [ 0, %entry ], [ %end, %next ]
  %at1 = add i64 %at, 1
  %product = mul i64 %units, %at1
  %end = udiv i64 %product, %team
  %high = shl i64 %end, 32
  %range = or i64 %high, %first
  %place = getelementptr [1024 x [16 x i64]], ptr @ranges, i64 0, i64 %at
  store atomic i64 %range, ptr %place monotonic, align 8
  %more = icmp ult i64 %at1, %team
  br i1 %more, label %next, label %out
out:
  ret void
}

; Take parts of one's own range from its front, then of the others' from their backs, until none is
; left or a body failed. A part is half of what a range has left, so that late and slow threads even
; out. After Markatos and LeBlanc, Using Processor Affinity in Loop Scheduling on Shared-Memory
; Multiprocessors, 1994.
; Where signals are watched for, a part is run in pieces of some hundredths of a second, by the time
; of the piece before; the first one is small, and others grow until the clock moves on. Between long
; ones a failure is heeded.
define internal void @drain(i64 %member, ptr %workspace) {
entry:
  %since = alloca i64
  %enough = alloca i64
  %watch = load atomic ptr, ptr @watch acquire, align 8
  %watched = icmp ne ptr %watch, null
  %caller = icmp eq i64 %member, 0
  br i1 %watched, label %clock, label %loaded
clock:
  %began = call i64 @now()
  store i64 %began, ptr %since
  store i64 0, ptr %enough
  br i1 %caller, label %begin_series, label %loaded
begin_series:
  %early = call i32 @ask_if_due(ptr %watch, i64 %began)
  %calm = icmp eq i32 %early, 0
  br i1 %calm, label %loaded, label %fail
loaded:
  %body = load ptr, ptr @job
  %closure = load ptr, ptr getelementptr (%job, ptr @job, i32 0, i32 1)
  %n = load i64, ptr getelementptr (%job, ptr @job, i32 0, i32 2)
  %team = load i64, ptr getelementptr (%job, ptr @job, i32 0, i32 4)
  %unit = load i64, ptr getelementptr (%job, ptr @job, i32 0, i32 5)
  br label %visit
visit:
  %k = phi i64 [ 0, %loaded ], [ %k1, %leave ]
  %sum = add i64 %member, %k
  %whose = urem i64 %sum, %team
  %place = getelementptr [1024 x [16 x i64]], ptr @ranges, i64 0, i64 %whose
  %own = icmp eq i64 %k, 0
  br label %look
look:
  %failed = load atomic i32, ptr @result monotonic, align 4
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %fetch, label %out
fetch:
  %found = load atomic i64, ptr %place monotonic, align 8
  br label %take
take:
  %range = phi i64 [ %found, %fetch ], [ %moved, %claim ]
  %first = and i64 %range, 4294967295
  %end = lshr i64 %range, 32
  %left = sub i64 %end, %first
  %any = icmp ne i64 %left, 0
  br i1 %any, label %claim, label %leave
claim:
  %half = lshr i64 %left, 1
  %part = call i64 @llvm.smax.i64(i64 %half, i64 1)
  %first_moved = add i64 %range, %part
  %part_high = shl i64 %part, 32
  %end_moved = sub i64 %range, %part_high
  %rest = select i1 %own, i64 %first_moved, i64 %end_moved
  %swap = cmpxchg ptr %place, i64 %range, i64 %rest monotonic monotonic, align 8
  %moved = extractvalue { i64, i1 } %swap, 0
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %run, label %take
run:
  %from_back = sub i64 %end, %part
  %part_first = select i1 %own, i64 %first, i64 %from_back
  %part_end = add i64 %part_first, %part
  br i1 %watched, label %cut, label %next
cut:
  %taken = load i64, ptr %enough
  %fraction = lshr i64 %part, 8
  %little = call i64 @llvm.smax.i64(i64 %fraction, i64 1)
  %unknown = icmp eq i64 %taken, 0
  %piece = select i1 %unknown, i64 %little, i64 %taken
  br label %next
next:
  %at = phi i64 [ %part_first, %run ], [ %part_first, %cut ], [ %piece_end, %more ]
  %size = phi i64 [ %part, %run ], [ %piece, %cut ], [ %then, %more ]
  %full_piece = add i64 %at, %size
  %piece_end = call i64 @llvm.umin.i64(i64 %full_piece, i64 %part_end)
  %begin = mul i64 %at, %unit
  %full_stop = mul i64 %piece_end, %unit
  %stop = call i64 @llvm.umin.i64(i64 %full_stop, i64 %n)
  %rc = call i32 %body(i64 %begin, i64 %stop, ptr %closure, ptr %workspace)
  %good = icmp eq i32 %rc, 0
  br i1 %good, label %went, label %fail
went:
  br i1 %watched, label %time, label %look
time:
  %now = call i64 @now()
  %before = load i64, ptr %since
  %passed = sub i64 %now, %before
  store i64 %now, ptr %since
  %long = icmp ugt i64 %passed, 20000000
  br i1 %long, label %heed, label %judge
judge:
  %quick = icmp eq i64 %passed, 0
  br i1 %quick, label %grow, label %fit
grow:
  %done_quickly = sub i64 %piece_end, %at
  %grown = shl i64 %done_quickly, 3
  br label %more
heed:
  br i1 %caller, label %ask, label %heard
ask:
  %signal = call i32 @ask(ptr %watch, i64 %now)
  %undisturbed = icmp eq i32 %signal, 0
  br i1 %undisturbed, label %heard, label %fail
heard:
  %ended = load atomic i32, ptr @result monotonic, align 4
  %goes_on = icmp eq i32 %ended, 0
  br i1 %goes_on, label %fit, label %out
fit:
  %done = sub i64 %piece_end, %at
  %wanted = mul i64 %done, 40000000
  %spent = or i64 %passed, 1
  %fitting = udiv i64 %wanted, %spent
  %fitted = call i64 @llvm.smax.i64(i64 %fitting, i64 1)
  br label %more
more:
  %then = phi i64 [ %grown, %grow ], [ %fitted, %fit ]
  store i64 %then, ptr %enough
  %unfinished = icmp ult i64 %piece_end, %part_end
  br i1 %unfinished, label %next, label %look
fail:
  %code = phi i32 [ %rc, %next ], [ %signal, %ask ], [ %early, %begin_series ]
  %kept = cmpxchg ptr @result, i32 0, i32 %code monotonic monotonic, align 4
  br label %out
leave:
  %k1 = add i64 %k, 1
  %others = icmp ult i64 %k1, %team
  br i1 %others, label %visit, label %out
out:
  ret void
}

; Nanoseconds of a clock that takes few of them to read, and moves on every few milliseconds.
define internal i64 @now() {
  %now = call i64 @clock(i32 $CLOCK)
  ret i64 %now
}

define internal i64 @clock(i32 %kind) {
  %place = alloca [2 x i64]
  %rc = call i32 @clock_gettime(i32 %kind, ptr %place)
  %seconds = load i64, ptr %place
  %rest_at = getelementptr i64, ptr %place, i64 1
  %rest = load i64, ptr %rest_at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

; Nanoseconds of a clock that is exact, and takes some tens of them to read.
define internal i64 @precisely() {
  %now = call i64 @clock(i32 0)
  ret i64 %now
}

; Let CPython handle signals, which only its main thread does. An exception of a handler is kept for
; the kernel's caller: this returns its code.
define internal i32 @ask(ptr %watch, i64 %now) {
entry:
  %handles = call i1 @is_main(ptr %watch)
  br i1 %handles, label %look, label %no
no:
  ret i32 0
look:
  store i64 %now, ptr @asked
  %ensure_at = getelementptr %watch, ptr %watch, i32 0, i32 1
  %ensure = load ptr, ptr %ensure_at
  %check_at = getelementptr %watch, ptr %watch, i32 0, i32 2
  %check = load ptr, ptr %check_at
  %release_at = getelementptr %watch, ptr %watch, i32 0, i32 3
  %release = load ptr, ptr %release_at
  %state = call i32 %ensure()
  %rc = call i32 %check()
  %nothing = icmp eq i32 %rc, 0
  br i1 %nothing, label %out, label %keep
keep:
  %fetch_at = getelementptr %watch, ptr %watch, i32 0, i32 4
  %fetch = load ptr, ptr %fetch_at
  %normalize_at = getelementptr %watch, ptr %watch, i32 0, i32 5
  %normalize = load ptr, ptr %normalize_at
  %kind = getelementptr %watch, ptr %watch, i32 0, i32 6, i32 0
  %value = getelementptr %watch, ptr %watch, i32 0, i32 6, i32 1
  %traceback = getelementptr %watch, ptr %watch, i32 0, i32 6, i32 2
  call void %fetch(ptr %kind, ptr %value, ptr %traceback)
  call void %normalize(ptr %kind, ptr %value, ptr %traceback)
  br label %out
out:
  call void %release(i32 %state)
  %code = select i1 %nothing, i32 0, i32 -2147483648
  ret i32 %code
}

; Ask where launches have followed each other for some hundredths of a second. One that comes after a
; pause does not: a call now and then never waits for CPython.
define internal i32 @ask_if_due(ptr %watch, i64 %now) {
  %handles = call i1 @is_main(ptr %watch)
  br i1 %handles, label %look, label %no
look:
  %ended = load i64, ptr @ended
  %pause = sub i64 %now, %ended
  %paused = icmp ugt i64 %pause, 10000000
  br i1 %paused, label %new, label %old
new:
  store i64 %now, ptr @asked
  br label %no
old:
  %asked = load i64, ptr @asked
  %passed = sub i64 %now, %asked
  %due = icmp ugt i64 %passed, 20000000
  br i1 %due, label %ask, label %no
ask:
  %rc = call i32 @ask(ptr %watch, i64 %now)
  ret i32 %rc
no:
  ret i32 0
}

define internal void @note_end() {
  %watch = load atomic ptr, ptr @watch acquire, align 8
  %watched = icmp ne ptr %watch, null
  br i1 %watched, label %look, label %out
look:
  %handles = call i1 @is_main(ptr %watch)
  br i1 %handles, label %note, label %out
note:
  %now = call i64 @now()
  store i64 %now, ptr @ended
  br label %out
out:
  ret void
}

define internal i1 @is_main(ptr %watch) {
  %main = load i64, ptr %watch
  %self = call i64 @pthread_self()
  %same = icmp eq i64 %self, %main
  ret i1 %same
}

; Until `joined` workers are done: look for a while, then sleep.
define internal void @await_done(i32 %joined) {
entry:
  %limit = load atomic i32, ptr @spin monotonic, align 4
  br label %look
look:
  %i = phi i32 [ 0, %entry ], [ %i1, %again ]
  %now = load atomic i32, ptr @done acquire, align 4
  %all = icmp eq i32 %now, %joined
  br i1 %all, label %out, label %patience
patience:
  %tired = icmp uge i32 %i, %limit
  br i1 %tired, label %lie_down, label %again
again:
  %i1 = add i32 %i, 1
  $PAUSE
  br label %look
lie_down:
  store atomic i32 1, ptr @waiting seq_cst, align 4
  br label %sleep
sleep:
  %then = load atomic i32, ptr @done seq_cst, align 4
  %finished = icmp eq i32 %then, %joined
  br i1 %finished, label %up, label %rest
rest:
  call void @sleep_caller(i32 %then)
  br label %sleep
up:
  store atomic i32 0, ptr @waiting seq_cst, align 4
  br label %out
out:
  ret void
}

; ---- workers

; A worker looks for work for a while, then sleeps. One that a launch woke within a millisecond is
; eager: the next time it looks for a millisecond more, so that calls of a model which follow each
; other find it awake. Where a launch came shortly after that, too, as it does where threads wait for
; CPUs, it is not eager for the next 20 sleeps.
define internal ptr @worker(ptr %slot) {
entry:
  %eager = alloca i1
  %since = alloca i64
  %grudge = alloca i32
  %offset = ptrtoint ptr %slot to i64
  %base = ptrtoint ptr @slots to i64
  %bytes = sub i64 %offset, %base
  %index64 = udiv i64 %bytes, 64
  %index = trunc i64 %index64 to i32
  %id_place = getelementptr %slot, ptr %slot, i32 0, i32 2
  %seen_place = getelementptr %slot, ptr %slot, i32 0, i32 3
  %start = load i32, ptr %seen_place
  $THREAD_ID
  store atomic i32 %id, ptr %id_place release, align 4
  store i1 false, ptr %eager
  store i32 0, ptr %grudge
  br label %outer
outer:
  %seen = phi i32 [ %start, %entry ], [ %epoch, %unwanted ], [ %epoch, %refused ], [ %epoch, %rest ]
  %limit = load atomic i32, ptr @spin monotonic, align 4
  %dozes = icmp eq i32 %limit, 0
  store i64 0, ptr %since
  br label %look
look:
  %i = phi i32 [ 0, %outer ], [ %i1, %again ], [ %limit, %woken ]
  %gate = load atomic i64, ptr @gate acquire, align 8
  %epoch64 = lshr i64 %gate, 32
  %epoch = trunc i64 %epoch64 to i32
  %same = icmp eq i32 %epoch, %seen
  br i1 %same, label %patience, label %arrived
patience:
  %tired = icmp uge i32 %i, %limit
  br i1 %tired, label %consider, label %again
again:
  %i1 = add i32 %i, 1
  $PAUSE
  br label %look
consider:
  %expects = load i1, ptr %eager
  %calm = xor i1 %expects, true
  %no_more = or i1 %calm, %dozes
  br i1 %no_more, label %sleep, label %extend
extend:
  %moment = call i64 @precisely()
  %began = load i64, ptr %since
  %first = icmp eq i64 %began, 0
  br i1 %first, label %note, label %measure
note:
  store i64 %moment, ptr %since
  br label %again
measure:
  %looked = sub i64 %moment, %began
  %enough = icmp ugt i64 %looked, 1000000
  br i1 %enough, label %sleep, label %again
sleep:
  %lay_down = call i64 @precisely()
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  br label %doze
doze:
  call void @sleep_worker(i32 %seen)
  %gate_now = load atomic i64, ptr @gate acquire, align 8
  %epoch_now64 = lshr i64 %gate_now, 32
  %epoch_now = trunc i64 %epoch_now64 to i32
  %too_early = icmp eq i32 %epoch_now, %seen
  br i1 %too_early, label %doze, label %woken
woken:
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  %got_up = call i64 @precisely()
  %slept = sub i64 %got_up, %lay_down
  %short = icmp ult i64 %slept, 1000000
  %asked_in_vain = load i64, ptr %since
  %long_look = icmp ne i64 %asked_in_vain, 0
  %failed = and i1 %short, %long_look
  %owed = load i32, ptr %grudge
  %less = call i32 @llvm.usub.sat.i32(i32 %owed, i32 1)
  %left = select i1 %failed, i32 20, i32 %less
  store i32 %left, ptr %grudge
  %over = icmp eq i32 %left, 0
  %pays = and i1 %short, %over
  store i1 %pays, ptr %eager
  br label %look
arrived:
  %wanted = and i32 %epoch, 1023
  %mine = icmp ult i32 %index, %wanted
  br i1 %mine, label %knock, label %unwanted
unwanted:
  store i1 false, ptr %eager
  br label %outer
knock:
  %g = phi i64 [ %gate, %arrived ], [ %g_now, %enter ]
  %g_epoch64 = lshr i64 %g, 32
  %g_epoch = trunc i64 %g_epoch64 to i32
  %stale = icmp ne i32 %g_epoch, %epoch
  %shut_bit = and i64 %g, 2147483648
  %shut = icmp ne i64 %shut_bit, 0
  %late = or i1 %stale, %shut
  br i1 %late, label %refused, label %enter
refused:
  br label %outer
enter:
  %g1 = add i64 %g, 1
  %swap = cmpxchg ptr @gate, i64 %g, i64 %g1 acq_rel acquire, align 8
  %g_now = extractvalue { i64, i1 } %swap, 0
  %in = extractvalue { i64, i1 } %swap, 1
  br i1 %in, label %work, label %knock
work:
  %place = add i64 %index64, 1
  call void @take_part(ptr %slot, i64 %place)
  %d = atomicrmw add ptr @done, i32 1 seq_cst
  %w = load atomic i32, ptr @waiting seq_cst, align 4
  %caller_sleeps = icmp ne i32 %w, 0
  br i1 %caller_sleeps, label %call, label %rest
call:
  call void @wake_caller()
  br label %rest
rest:
  br label %outer
}

; Grow the private workspace if this job needs more, then take ranges.
define internal void @take_part(ptr %slot, i64 %place) {
entry:
  %need = load i64, ptr getelementptr (%job, ptr @job, i32 0, i32 3)
  %size_place = getelementptr %slot, ptr %slot, i32 0, i32 1
  %size = load i64, ptr %size_place
  %small = icmp ugt i64 %need, %size
  br i1 %small, label %grow, label %ready
grow:
  %old = load ptr, ptr %slot
  call void @free(ptr %old)
  store ptr null, ptr %slot
  store i64 0, ptr %size_place
  %rc = call i32 @posix_memalign(ptr %slot, i64 64, i64 %need)
  %got = icmp eq i32 %rc, 0
  br i1 %got, label %grown, label %failed
grown:
  store i64 %need, ptr %size_place
  br label %ready
failed:
  store ptr null, ptr %slot
  %kept = cmpxchg ptr @result, i32 0, i32 1 monotonic monotonic, align 4
  ret void
ready:
  %workspace = load ptr, ptr %slot
  call void @drain(i64 %place, ptr %workspace)
  ret void
}

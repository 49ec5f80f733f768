; Timing in compiled code, in an object of its own: beside the kernel LLVM could remove the work.
; $CLOCK is the system's CLOCK_MONOTONIC, $FLUSH evicts one cache line.

declare i32 @clock_gettime(i32, ptr)

define internal i64 @now() {
  %t = alloca { i64, i64 }
  %rc = call i32 @clock_gettime(i32 $CLOCK, ptr %t)
  %s = load i64, ptr %t
  %fraction = getelementptr { i64, i64 }, ptr %t, i32 0, i32 1
  %ns = load i64, ptr %fraction
  %whole = mul i64 %s, 1000000000
  %sum = add i64 %whole, %ns
  ret i64 %sum
}

; Nanoseconds of `number` calls back to back, which take turns on `count` sets of arguments, from the
; set `first` on. A call that fails ends it: the upper half of the result is then -1 (so it is
; negative), the lower half the call's code.
define i64 @lw_time_turns(ptr %f, ptr %sets, i64 %count, i64 %first, ptr %workspace, i64 %number) {
entry:
  %start = call i64 @now()
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %i1, %call ]
  %set = phi i64 [ %first, %entry ], [ %next, %call ]
  %more = icmp slt i64 %i, %number
  br i1 %more, label %call, label %end
call:
  %i1 = add i64 %i, 1
  %place = getelementptr ptr, ptr %sets, i64 %set
  %args = load ptr, ptr %place
  %set1 = add i64 %set, 1
  %around = icmp eq i64 %set1, %count
  %next = select i1 %around, i64 0, i64 %set1
  %rc = call i32 %f(ptr %args, ptr %workspace)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %check, label %failed
end:
  %stop = call i64 @now()
  %took = sub i64 %stop, %start
  ret i64 %took
failed:
  %code = zext i32 %rc to i64
  %tagged = or i64 %code, -4294967296
  ret i64 %tagged
}

; The same with one set of arguments.
define i64 @lw_time(ptr %f, ptr %args, ptr %workspace, i64 %number) {
  %set = alloca ptr
  store ptr %args, ptr %set
  %took = call i64 @lw_time_turns(ptr %f, ptr %set, i64 1, i64 0, ptr %workspace, i64 %number)
  ret i64 %took
}

; Evict `bytes` bytes from every cache.
define void @lw_flush(ptr %data, i64 %bytes) {
entry:
  br label %check
check:
  %at = phi i64 [ 0, %entry ], [ %next, %line ]
  %more = icmp ult i64 %at, %bytes
  br i1 %more, label %line, label %out
line:
  %place = getelementptr i8, ptr %data, i64 %at
  $FLUSH
  %next = add i64 %at, 64
  br label %check
out:
  fence seq_cst
  ret void
}

; Sleeping on Linux: the kernel compares the word and sleeps in one step, so no wake-up is lost.
; $FUTEX is the number of the system call; 128 and 129 are FUTEX_WAIT and FUTEX_WAKE, private.

declare i64 @syscall(i64, ...)

define internal void @reset_sleep() {
  ret void
}

; The epoch is the upper half of @gate, four bytes up on these little-endian machines.
define internal void @sleep_worker(i32 %seen) {
  %rc = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr getelementptr (i8, ptr @gate, i64 4), i64 128, i32 %seen, ptr null)
  ret void
}

define internal void @wake_workers() {
  %rc = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr getelementptr (i8, ptr @gate, i64 4), i64 129, i32 2147483647)
  ret void
}

define internal void @sleep_caller(i32 %seen) {
  %rc = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr @done, i64 128, i32 %seen, ptr null)
  ret void
}

define internal void @wake_caller() {
  %rc = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr @done, i64 129, i32 1)
  ret void
}

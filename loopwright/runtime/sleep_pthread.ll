; Sleeping on any POSIX system. The word is compared under the mutex under which wake-ups are sent, so
; none is lost. 128 bytes hold a mutex or a condition variable of every known C library.

@mutex = internal global [128 x i8] zeroinitializer, align 64
@opened = internal global [128 x i8] zeroinitializer, align 64
@finished = internal global [128 x i8] zeroinitializer, align 64

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define internal void @reset_sleep() {
  %a = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr @opened, ptr null)
  %c = call i32 @pthread_cond_init(ptr @finished, ptr null)
  ret void
}

define internal void @sleep_worker(i32 %seen) {
  %a = call i32 @pthread_mutex_lock(ptr @mutex)
  %gate = load atomic i64, ptr @gate seq_cst, align 8
  %epoch64 = lshr i64 %gate, 32
  %epoch = trunc i64 %epoch64 to i32
  %same = icmp eq i32 %epoch, %seen
  br i1 %same, label %wait, label %out
wait:
  %b = call i32 @pthread_cond_wait(ptr @opened, ptr @mutex)
  br label %out
out:
  %c = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

define internal void @wake_workers() {
  call void @wake(ptr @opened)
  ret void
}

define internal void @sleep_caller(i32 %seen) {
  %a = call i32 @pthread_mutex_lock(ptr @mutex)
  %now = load atomic i32, ptr @done seq_cst, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %wait, label %out
wait:
  %b = call i32 @pthread_cond_wait(ptr @finished, ptr @mutex)
  br label %out
out:
  %c = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

define internal void @wake_caller() {
  call void @wake(ptr @finished)
  ret void
}

define internal void @wake(ptr %condition) {
  %a = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr %condition)
  %c = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

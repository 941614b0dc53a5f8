package gcov

// Lines for the script of a guest that runs a counting kernel, with debugfs
// mounted in its usual place and /out as the folder that comes out of it.
const (
	// GuestReset forgets what boot and warming up counted.
	GuestReset = "echo 1 >/sys/kernel/debug/gcov/reset || exit\n"
	// GuestCollect copies all counters to /out/gcov, for Load. The copying
	// itself is counted too, little as it is beside a workload.
	GuestCollect = "mkdir -p /out/gcov || exit\n" +
		"(cd /sys/kernel/debug/gcov && find . -name '*.gcda' -exec cp --parents -t /out/gcov {} +) || exit\n"
	// GuestFolder is where Load finds them below the files of a guest.
	GuestFolder = "gcov"
)

//go:build failpoints && linux

package failpoint

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Hit ends or stops this process if the environment says that it is to happen here, and has not happened yet. A process that was
// stopped goes on from here. It panics over a setting that it cannot read: a test that ends nothing must not pass for one that did.
func Hit(name string) {
	setting := os.Getenv(Variable)
	if setting == "" {
		return
	}
	wanted, n, how := parse(setting)
	marker := os.Getenv(OnceVariable)
	if marker == "" {
		panic("failpoint: " + OnceVariable + " is not set")
	}
	if wanted != name || !due(marker, n) {
		return
	}
	// The thread itself is signalled: it does not return to what it did before the signal has taken effect.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = syscall.Tgkill(os.Getpid(), syscall.Gettid(), how)
	if how == syscall.SIGKILL {
		select {}
	}
}

func parse(setting string) (name string, n int, how syscall.Signal) {
	place, act, _ := strings.Cut(setting, "=")
	name, count, counted := strings.Cut(place, "@")
	n = 1
	if counted {
		var err error
		if n, err = strconv.Atoi(count); err != nil || n < 1 {
			panic(fmt.Sprintf("failpoint: %q names no count", setting))
		}
	}
	if !slices.Contains(slices.Concat(Names(), Hands(), Ends(), Attempts(), Teams(), Orders()), name) {
		panic(fmt.Sprintf("failpoint: %q names no place", setting))
	}
	switch act {
	case "kill":
		return name, n, syscall.SIGKILL
	case "stop":
		return name, n, syscall.SIGSTOP
	}
	panic(fmt.Sprintf("failpoint: %q says neither kill nor stop", setting))
}

// due counts a pass in the files beside the marker, and reports whether it is the nth. The files outlive the process, so they also count
// over several, and need no variable of this package.
func due(marker string, n int) bool {
	for i := 1; i <= n; i++ {
		path := marker
		if i < n {
			path += "." + strconv.Itoa(i)
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if os.IsExist(err) {
			continue
		}
		if err != nil {
			panic("failpoint: " + err.Error())
		}
		_, err = fmt.Fprintln(file, os.Getpid())
		if closeErr := file.Close(); err != nil || closeErr != nil {
			panic(fmt.Sprintf("failpoint: %v %v", err, closeErr))
		}
		return i == n
	}
	return false
}

package node

import (
	"errors"
	"fmt"
	"os"
)

// RunTests runs a suite's tests, and prints logs if something failed. It returns what failed besides tests, so that
// the caller prints it after the logs: what sound returns, and the tests' own Err, if they have that method.
func RunTests(tests interface{ Run() int }, sound func() error, logs func()) (code int, err error) {
	code = tests.Run()
	if t, ok := tests.(interface{ Err() error }); ok {
		err = t.Err()
	}
	if err = errors.Join(err, sound()); code != 0 || err != nil {
		logs()
	}
	return code, err
}

// Ended returns the exit code of a suite. It prints the error as the suite's last lines, which test/cmd/gotest
// finds by their begin.
func Ended(code int, err error) int {
	if err == nil {
		return code
	}
	fmt.Fprintf(os.Stderr, "suite failed: %v\n", err)
	return max(code, 1)
}

package specs

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"gotest.tools/v3/assert"
)

// Run runs a suite, whose output goes to a file. Specs that fail are no error; a suite that does not come to its
// end is.
func Run(t testing.TB, suite *exec.Cmd, output string) {
	t.Helper()
	out, err := os.Create(output)
	assert.NilError(t, err)
	defer out.Close()
	suite.Stdout, suite.Stderr = out, out
	if err := suite.Run(); err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); !ended {
			t.Fatalf("run the suite: %v", err)
		}
	}
}

// Setting is the value of an environment variable, or otherwise if it is empty.
func Setting(variable, otherwise string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return otherwise
}

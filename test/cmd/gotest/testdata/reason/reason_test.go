package reason

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/nodevirt/nodevirt/test/node"
)

// suite is tests that leave something.
type suite struct{ *testing.M }

func (suite) Err() error {
	return errors.New("census of the node: it holds other things than before:\n+ link tap0\n+ mount /mnt")
}

func TestMain(m *testing.M) {
	os.Exit(node.Ended(node.RunTests(suite{m}, func() error { return nil }, func() {
		for i := range 1000 {
			fmt.Println("log line", i)
		}
		fmt.Println("panic: of a daemon")
	})))
}

func TestGood(t *testing.T) {}

func TestBad(t *testing.T) { t.Error("wrong") }

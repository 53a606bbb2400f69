package sample

import (
	"strings"
	"testing"
)

func TestGood(t *testing.T) { t.Log("all is well") }

func TestBad(t *testing.T) {
	t.Parallel()
	t.Error("the first thing that is wrong")
	t.Error("the second:\nwith a line more")
	t.Log("the console:\n" + strings.Repeat("--- a line of a console\n", 2000))
	t.Error(strings.Repeat("long ", 1000))
}

func TestParent(t *testing.T) {
	t.Run("good", func(t *testing.T) { t.Log("well") })
	t.Run("bad", func(t *testing.T) { t.Fatal("wrong") })
}

func TestSkipped(t *testing.T) { t.Skip("not here") }

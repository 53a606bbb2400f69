package hangs

import "testing"

func TestWaits(t *testing.T) { t.Parallel() }

func TestHangs(t *testing.T) { <-t.Context().Done() }

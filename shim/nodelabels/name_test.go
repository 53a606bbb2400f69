package nodelabels

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
)

// lateName is a node's name that the API server says at the third request.
type lateName int

func (l *lateName) NodeName(context.Context) (string, error) {
	if *l++; *l < 3 {
		return "", errors.New("no credential yet")
	}
	return "worker-1", nil
}

func TestName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, got := lateName(0), ""
		untilNamed(t.Context(), &asked, slog.New(slog.DiscardHandler), func(name string) { got = name })
		if got != "worker-1" || asked != 3 {
			t.Errorf("%q after %d requests", got, asked)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		untilNamed(ended, new(lateName), slog.New(slog.DiscardHandler), func(name string) { t.Errorf("%s, though the shim ends", name) })
	})
	Name(t.Context(), "", slog.New(slog.DiscardHandler), func(name string) { t.Errorf("%s without a kubeconfig", name) })
}

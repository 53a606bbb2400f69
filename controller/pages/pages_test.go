package pages_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pages"
	"github.com/nodevirt/nodevirt/internal/bounds"
)

// endless is an API server whose lists have no end. It counts what it is asked for.
type endless struct {
	client.Reader
	delay time.Duration
	asked int
	most  int64
}

func (e *endless) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	e.asked++
	e.most = max(e.most, o.Limit)
	list.SetContinue("more")
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(e.delay):
		return nil
	}
}

func empty() *corev1.PodList { return new(corev1.PodList) }

// TestPages: a list is read in pages, and not further than is looked at.
func TestPages(t *testing.T) {
	e := &endless{}
	looks := 0
	err := pages.Each(t.Context(), e, "ns", empty, func(*corev1.PodList) (bool, error) {
		looks++
		return looks == 3, nil
	})
	if err != nil || e.asked != 3 || e.most <= 0 || e.most > 100 {
		t.Errorf("%d lists of %d, %v", e.asked, e.most, err)
	}
}

// TestEnds: a list without an end ends, by the number of objects or by time.
func TestEnds(t *testing.T) {
	none := func(*corev1.PodList) (bool, error) { return false, nil }
	for delay, want := range map[time.Duration]string{0: "more than 8192", 10 * time.Second: "not read within 30s"} {
		synctest.Test(t, func(t *testing.T) {
			e := &endless{delay: delay}
			begun := time.Now()
			err := pages.Each(t.Context(), e, "ns", empty, none)
			if !errors.Is(err, pages.ErrTooMany) || !strings.Contains(err.Error(), want) {
				t.Errorf("delay of %s: %v", delay, err)
			}
			if took := time.Since(begun); took > bounds.OthersTime {
				t.Errorf("a list took %s", took)
			}
		})
	}
}

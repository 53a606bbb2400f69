package vmi

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// slowEvents answers a list of events with one failure, and takes a while.
type slowEvents struct {
	client.Reader
	now   *time.Time
	takes time.Duration
	lists int
	err   error
}

func (s *slowEvents) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.lists++
	*s.now = s.now.Add(s.takes)
	list.(*corev1.EventList).Items = []corev1.Event{{
		Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: fmt.Sprint("list ", s.lists),
	}}
	return s.err
}

// TestEventLooks: however many pods ask, events are listed in a fifth of the time alone, and a pod keeps the failure
// that was found for it.
func TestEventLooks(t *testing.T) {
	now := time.Unix(0, 0)
	server := &slowEvents{now: &now, takes: time.Second}
	looks := newEventLooks(server)
	looks.now = func() time.Time { return now }
	look := func(uid types.UID) string {
		t.Helper()
		found, err := looks.lastFailure(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
		assert.NilError(t, err)
		if found == nil {
			return ""
		}
		return found.message
	}
	assert.Equal(t, look("a"), "list 1")
	assert.Equal(t, look("b"), "", "listed without a pause")
	assert.Equal(t, look("a"), "list 1")
	now = now.Add(3999 * time.Millisecond)
	assert.Equal(t, look("b"), "")
	now = now.Add(time.Millisecond)
	assert.Equal(t, look("b"), "list 2")
	now = now.Add(4 * time.Second)

	server.err = errors.New("no server")
	_, err := looks.lastFailure(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}})
	assert.ErrorIs(t, err, server.err)
	server.err = nil
	assert.Equal(t, look("a"), "list 1", "a failed list forgets what was known")

	server.takes = 0
	now = now.Add(4 * time.Second)
	for i := range 2 * maxLooks {
		look(types.UID(fmt.Sprint("pod ", i)))
	}
	assert.Assert(t, len(looks.known) <= maxLooks, len(looks.known))
}

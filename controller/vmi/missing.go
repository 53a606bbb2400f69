package vmi

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/recent"
)

// ReasonGuestMissing is the reason in the status of an instance whose node no longer has the guest's container.
const ReasonGuestMissing = "GuestMissing"

const (
	// missingTime is how long nodes have to say where such a guest is. Each reports its guests without pods about every
	// minute, and where the guests of its pods have gone.
	missingTime = 2 * time.Minute
	// maxMissing bounds the memory that such pods take. One that is forgotten has its time again.
	maxMissing = 10000
)

// containerUnknown is the kubelet's reason of the end of a container that ran and that its node no longer has.
const containerUnknown = "ContainerStatusUnknown"

// missing reports whether the kubelet says that the guest, which ran, has ended since it does not find the container. That
// proves no end: after a restore of etcd, the guest may have moved, and its source's container been removed. A pod with a
// reason, such as Evicted, has been ended by the kubelet.
func (v view) missing() bool {
	if v.pod == nil || v.node.vacant() || !v.ended() || v.pod.Status.Reason != "" {
		return false
	}
	for i := range v.pod.Status.ContainerStatuses {
		s := &v.pod.Status.ContainerStatuses[i]
		if s.Name != pod.Container {
			continue
		}
		// The kubelet writes the former state of a container that ran, and later, when it gives up the pod, the present one. It
		// writes the latter alone of a container that never started.
		last, now := s.LastTerminationState.Terminated, s.State.Terminated
		return last != nil && last.Reason == containerUnknown && (now == nil || now.Reason == containerUnknown)
	}
	return false
}

// missingGuests knows since when nodes miss the containers of guests.
type missingGuests struct {
	now func() time.Time

	mu    sync.Mutex
	since *recent.Values[types.UID, time.Time]
}

func newMissingGuests(now func() time.Time) *missingGuests {
	return &missingGuests{now: now, since: recent.New[types.UID, time.Time](maxMissing / 2)}
}

// wait returns how long an instance with that pod waits until its guest counts as ended; 0 for not at all.
func (m *missingGuests) wait(v view) time.Duration {
	if !v.missing() {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	since, known := m.since.Find(v.pod.UID)
	if !known {
		since = m.now()
		m.since.Add(v.pod.UID, since)
	}
	return max(missingTime-m.now().Sub(since), 0)
}

// awaited says what an instance waits for whose guest is missing.
func (v view) awaited() string {
	return fmt.Sprintf("Node %s no longer has the VM's container. Within %s, nodes say whether the guest runs elsewhere, as after "+
		"a restore of etcd; nothing is started meanwhile", v.pod.Spec.NodeName, missingTime)
}

// lostContainer says why a guest counts as ended whose node no longer has its container.
func (v view) lostContainer() string {
	return fmt.Sprintf("Node %s no longer has the VM's container: it was removed there, the node was reinstalled, "+
		"or etcd was restored from a backup. How the guest has ended is not known.", v.pod.Spec.NodeName)
}

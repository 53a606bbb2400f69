package domain_test

import (
	"testing"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

// TestSuites checks that the real libvirt is what the fake one is.
func TestSuites(t *testing.T) {
	driver := domain.StartDriver(t)
	d := vmtest.Libvirtd{
		Connection: driver.Connection, Domains: driver.Lifecycle, Observer: driver.Observer, Processes: driver.Processes, Memory: driver.Balloon,
	}
	sample := func(t *testing.T) vmtest.Sample {
		t.Helper()
		m, files := domain.NewGuest(t)
		text, err := domain.XML(m)
		if err != nil {
			t.Fatal(err)
		}
		return vmtest.Sample{UUID: m.UUID, Name: m.Name, XML: text, RAM: m.Spec.Memory, Files: files}
	}
	t.Run("domains", func(t *testing.T) { vmtest.TestDomains(t, d, sample(t)) })
	t.Run("memory", func(t *testing.T) { vmtest.TestMemory(t, d, sample(t)) })
	t.Run("events", func(t *testing.T) { vmtest.TestEvents(t, d, sample(t)) })
}

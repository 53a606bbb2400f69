package subresources

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gotest.tools/v3/assert"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestConnections: connections to a VM are counted while they are open, and the time of the last one stays.
func TestConnections(t *testing.T) {
	now := time.Unix(1000, 0)
	c := newConnections(func() time.Time { return now })
	registry := prometheus.NewPedanticRegistry()
	assert.NilError(t, c.register(registry))
	assert.NilError(t, c.register(registry), "another server of the process")
	web := client.ObjectKey{Namespace: "default", Name: "web"}
	first, second := c.begin(web, kindConsole), c.begin(web, kindConsole)
	display := c.begin(web, kindDisplay)
	first()
	now = time.Unix(2000, 0)
	display()
	defer second()
	all, err := registry.Gather()
	assert.NilError(t, err)
	got := map[string]float64{}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			got[family.GetName()+" "+m.GetLabel()[0].GetValue()+"/"+m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
		}
	}
	assert.DeepEqual(t, got, map[string]float64{
		"kubevirt_console_active_connections default/web":                1,
		"kubevirt_vnc_active_connections default/web":                    0,
		"kubevirt_vmi_last_api_connection_timestamp_seconds default/web": 2000,
	})
}

// TestManyConnected: of too many VMs the ones without connections are forgotten, those of the longest ago first.
func TestManyConnected(t *testing.T) {
	now := time.Unix(1000, 0)
	c := newConnections(func() time.Time { return now })
	vm := func(i int) client.ObjectKey { return client.ObjectKey{Namespace: "default", Name: fmt.Sprint(i)} }
	end := c.begin(vm(0), kindPort)
	for i := 1; i <= mostConnected+1; i++ {
		now = now.Add(time.Second)
		c.begin(vm(i), kindPort)()
	}
	assert.Equal(t, len(c.of), mostConnected)
	assert.Assert(t, c.of[vm(0)] != nil && c.of[vm(1)] == nil && c.of[vm(2)] == nil && c.of[vm(3)] != nil)
	end()
	assert.Equal(t, c.of[vm(0)].all(), 0)
}

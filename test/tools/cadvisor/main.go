// Command cadvisor is cAdvisor, with the flags by which node e2e starts it: the program in its module does not start
// when today's Go has built it.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/google/cadvisor/cache/memory"
	"github.com/google/cadvisor/container"
	pages "github.com/google/cadvisor/http"
	"github.com/google/cadvisor/manager"
	"github.com/google/cadvisor/utils/sysfs"
)

func main() {
	port := flag.Int("port", 8080, "where it listens")
	flag.Bool("profiling", false, "ignored")
	flag.Parse()
	log.Fatal(serve(fmt.Sprintf(":%d", *port)))
}

// serve measures the CPU time and memory of all cgroups, and answers clients of its API.
func serve(address string) error {
	metrics := container.MetricSet{container.CpuUsageMetrics: {}, container.MemoryUsageMetrics: {}}
	m, err := manager.New(memory.New(2*time.Minute, nil), sysfs.NewRealSysFs(), time.Minute, false, metrics, http.DefaultClient, []string{""})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	if err := pages.RegisterHandlers(mux, m, "", "", "", "", ""); err != nil {
		return err
	}
	if err := m.Start(); err != nil {
		return err
	}
	return http.ListenAndServe(address, mux)
}

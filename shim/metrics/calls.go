package metrics

import (
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Side is the program that answered a call.
type Side string

// The sides of the CRI front.
const (
	// SideShim is the shim itself.
	SideShim Side = "shim"
	// SideContainerd is containerd alone: the call was forwarded.
	SideContainerd Side = "containerd"
	// SideBoth is a call whose answer merges containerd's with the shim's.
	SideBoth Side = "both"
)

// otherMethod is the label of all methods that CRI does not have, of which a client
// could invent any number.
const otherMethod = "other"

// calls are the metrics of the CRI front.
type calls struct {
	methods  map[string]string // full name → label
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

func newCalls() calls {
	c := calls{
		methods: map[string]string{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "cri", Name: "requests_total",
			Help: "CRI calls that ended, by method, by who answered (shim, containerd or both), and by gRPC code.",
		}, []string{"method", "side", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: "cri", Name: "request_duration_seconds",
			Help: "Time from a CRI call to the end of its answer, without calls that last until their client disconnects.",
			// A forwarded call takes under a millisecond, a pull minutes.
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30, 120},
		}, []string{"method", "side"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "cri", Name: "requests_in_flight",
			Help: "CRI calls in progress.",
		}, []string{"method"}),
	}
	for _, s := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, m := range s.Methods {
			c.methods["/"+s.ServiceName+"/"+m.MethodName] = m.MethodName
		}
		for _, m := range s.Streams {
			c.methods["/"+s.ServiceName+"/"+m.StreamName] = m.StreamName
		}
	}
	return c
}

func (c calls) register(r prometheus.Registerer) {
	r.MustRegister(c.requests, c.duration, c.inFlight)
}

// endless is the call that lasts until its client disconnects, so its duration has no
// meaning.
var endless = path.Base(runtimeapi.RuntimeService_GetContainerEvents_FullMethodName)

// Call records the start of a call of a method, given by its full name. The caller must
// call done at its end.
func (m *Metrics) Call(method string) (done func(side Side, code codes.Code)) {
	label, ok := m.calls.methods[method]
	if !ok {
		label = otherMethod
	}
	begun := time.Now()
	inFlight := m.calls.inFlight.WithLabelValues(label)
	inFlight.Inc()
	return func(side Side, code codes.Code) {
		inFlight.Dec()
		m.calls.requests.WithLabelValues(label, string(side), code.String()).Inc()
		if label != endless {
			m.calls.duration.WithLabelValues(label, string(side)).Observe(time.Since(begun).Seconds())
		}
	}
}

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	managerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nodevirt/nodevirt/controller/api"
	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/events"
	"github.com/nodevirt/nodevirt/controller/installation"
	"github.com/nodevirt/nodevirt/controller/kind"
	"github.com/nodevirt/nodevirt/controller/kinds"
	"github.com/nodevirt/nodevirt/controller/measures"
	"github.com/nodevirt/nodevirt/tracing"
)

// Options are what an administrator says of the controller.
type Options struct {
	// RuntimeClass is the name of the RuntimeClass of instances' pods.
	RuntimeClass string
	// StubImage is the image of VMs whose volumes have none; the controller's own
	// where it is empty.
	StubImage string
	// AttachmentImage is the image of pods that hold the volumes of VMs which got them while they
	// run, and whose program waits; the controller's own where it is empty.
	AttachmentImage string
	// ExportImage is the image of the pods that serve exports; the controller's own where it is empty.
	ExportImage string
	// ExportProxyNamespace is the namespace of the export proxy, if there is one; the controller's own
	// where it is empty.
	ExportProxyNamespace string
	// Flags are the defaults of what the KubeVirt object may say.
	Flags config.Flags
	// NetworkDisks has nodes' QEMU open PVCs on iSCSI and RBD over the network.
	NetworkDisks bool
	// Pod is the name of the controller's own pod, if it runs in one.
	Pod string
	// MetricsAddress and HealthAddress are where to listen, HOST:PORT; "0" for not at all.
	MetricsAddress, HealthAddress string
	// LeaderElection lets one of several controllers work at a time, by a Lease in
	// LeaderElectionNamespace, which is the pod's own where it is empty.
	LeaderElection          bool
	LeaderElectionNamespace string
	// APIAddress is where to serve admission and subresources to the API server,
	// HOST:PORT; "0" or empty for not at all.
	APIAddress string
	// Namespace has the Service by which the API server connects, and the Secret with
	// the certificate for it; empty for the pod's own namespace.
	Namespace string
	// GuestfsImage is the image of the pods that virtctl guestfs makes; empty for none.
	GuestfsImage string
	// Tracing has the settings of the collector; without an endpoint nothing is traced.
	Tracing tracing.Options
	// Version is what the controller says of itself.
	Version string
}

// lease is the name of the object that leaders are elected by.
const lease = "nodevirt-controller"

// Run serves until the context ends, or until leadership is lost.
func Run(ctx context.Context, cluster *rest.Config, o Options, log *slog.Logger) error {
	logger := logr.FromSlogHandler(log.Handler())
	ctrl.SetLogger(logger)
	traces, err := newTracing(ctx, o, log)
	if err != nil {
		return err
	}
	defer closeTracing(ctx, traces, log)
	m, err := New(cluster, o, logger)
	if err != nil {
		return err
	}
	if err := m.Add(leader(m, o, traces)); err != nil {
		return fmt.Errorf("add the reconcilers: %w", err)
	}
	if err := addChecks(m); err != nil {
		return err
	}
	if err := addServers(m, cluster, o, traces, log); err != nil {
		return err
	}
	if err := addExportProxy(m, cluster, o, log); err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("run the controller: %w", err)
	}
	return nil
}

// New returns the manager, without anything to run.
func New(cluster *rest.Config, o Options, log logr.Logger) (manager.Manager, error) {
	scheme, err := api.NewScheme()
	if err != nil {
		return nil, err
	}
	cluster = rest.CopyConfig(cluster)
	cluster.QPS = -1 // the API server's priority and fairness decide
	cluster.WarningHandlerWithContext = newWarnings(log)
	yes := true
	m, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme: scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return api.NewMapper(scheme), nil
		},
		Logger: log,
		Cache:  caches(),
		Client: client.Options{Cache: &client.CacheOptions{
			// What was just written is what is read next: no conflicts with ourselves,
			// and nothing is made twice.
			EnableReadYourWritesConsistency: &yes,
		}},
		// Names are unique here, and a program, of tests, may hold a second manager.
		Controller:                    managerconfig.Controller{SkipNameValidation: &yes},
		Metrics:                       server.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress:        o.HealthAddress,
		LeaderElection:                o.LeaderElection,
		LeaderElectionID:              lease,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the controller: %w", err)
	}
	return m, nil
}

// otherEvery is the time between two looks at another KubeVirt.
const otherEvery = 30 * time.Second

// leader sets the reconcilers up once this replica leads: until then it has no cache of what they read.
func leader(m manager.Manager, o Options, traces *tracing.Tracing) manager.RunnableFunc {
	return func(ctx context.Context) error {
		if err := setUp(ctx, m, o, traces); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
}

func setUp(ctx context.Context, m manager.Manager, o Options, traces *tracing.Tracing) error {
	uncached, err := client.New(m.GetConfig(), client.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("set up the reconcilers' client: %w", err)
	}
	if err := installation.WaitForOther(ctx, uncached, otherEvery, m.GetLogger()); err != nil {
		return err
	}
	stub, err := stubImage(ctx, uncached, o)
	if err != nil {
		return err
	}
	held, err := holder(ctx, uncached, o)
	if err != nil {
		return err
	}
	exporter, err := exportImage(ctx, uncached, o)
	if err != nil {
		return err
	}
	proxyNamespace, err := o.exportProxyNamespace()
	if err != nil {
		return err
	}
	configuration, err := o.configuration(m.GetClient())
	if err != nil {
		return err
	}
	// Each reconciler reads it, and may start before the one that watches it.
	if _, err := m.GetCache().GetInformer(ctx, new(kubevirt.KubeVirt), cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watch the configuration: %w", err)
	}
	sender, err := newEvents(m)
	if err != nil {
		return err
	}
	held.Support = func() []kubevirt.SupportContainerResources {
		c, err := configuration.Read(ctx)
		if err != nil {
			m.GetLogger().Error(err, "cannot read the KubeVirt object: support containers get their default resources")
		}
		return c.Given.SupportContainerResources
	}
	in := kind.Cluster{
		Manager: m, Uncached: uncached, RuntimeClass: o.RuntimeClass, StubImage: stub, Holder: held, ExportImage: exporter,
		ExportProxyNamespace: proxyNamespace, Config: configuration, NetworkDisks: o.NetworkDisks, Version: o.Version, Tracing: traces, Events: sender.Recorder, Now: time.Now,
	}
	for _, k := range kinds.All() {
		if k.SetUp == nil {
			continue
		}
		if err := k.SetUp(ctx, in); err != nil {
			return err
		}
	}
	return measure(ctx, m, in)
}

// measure has the manager report VMs to Prometheus.
func measure(ctx context.Context, m manager.Manager, in kind.Cluster) error {
	all := measures.New(m.GetClient(), in.Config, metrics.Registry, in.Now)
	for _, kind := range measures.Heard() {
		informer, err := m.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(all.Handler())
		}
		if err != nil {
			return fmt.Errorf("add the metrics of VMs: %w", err)
		}
	}
	if err := m.Add(all); err != nil {
		return fmt.Errorf("add the metrics of VMs: %w", err)
	}
	return nil
}

// newEvents lets the manager run what sends the reconcilers' events.
func newEvents(m manager.Manager) (*events.Sender, error) {
	c, err := eventsv1.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("set up the client of events: %w", err)
	}
	sender := events.NewSender(&clientevents.EventSinkImpl{Interface: c}, m.GetScheme(), slog.New(logr.ToSlogHandler(m.GetLogger())))
	if err := m.Add(sender); err != nil {
		return nil, fmt.Errorf("add the sender of events: %w", err)
	}
	return sender, nil
}

// configuration returns the source of the configuration, with a reader of the KubeVirt object.
func (o Options) configuration(r client.Reader) (config.Source, error) {
	namespace, err := o.namespace()
	if err != nil {
		return config.Source{}, err
	}
	return config.Source{Flags: o.Flags, Namespace: namespace, Reader: r}, nil
}

func addChecks(m manager.Manager) error {
	if err := m.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add health check: %w", err)
	}
	if err := m.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	return nil
}

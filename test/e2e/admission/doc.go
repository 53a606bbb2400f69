// Package admission tests what a cluster takes: an API server with the CRDs,
// webhooks and policies of deploy/, and a controller beside it. Nothing runs pods
// here. What each wrong manifest is told stands in controller/admission; that the
// API server passes it on unchanged is this package's matter.
package admission

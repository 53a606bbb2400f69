// Package admission tests what a cluster takes: an API server with the CRDs,
// webhooks and policies of deploy/, and a controller beside it. Nothing runs pods
// here. Package controller/admission tests the refusal of each wrong manifest; this package tests
// that the API server passes it on unchanged.
package admission

// Package httptool makes tools of HTTP endpoints: of one, which a Config describes, or of every operation of an OpenAPI
// document.
//
//	arguments ──► URL, query, headers, body ──► address allowed? ──► request ──► status, content type ──► result
//	                                                  │                                │
//	                                                denied                           fault
//
// What always holds:
//
//   - Scheme and host come from the manifest. An argument can only fill in a path segment, a query value, a header value
//     or a part of the body, and is escaped for where it goes.
//   - Only allowed hosts are asked, after redirects too. Every address is looked at when it is dialled, after its name was
//     resolved: private, loopback and link-local ones are refused unless the manifest allows them.
//   - Secrets stand in headers by reference, are read once at the start, go to the host of the manifest alone, and are taken
//     out of what a fault says.
//   - A response is read up to a bound and for as long as the call may take. A cancel aborts the request.
//   - A request that may have arrived is not sent a second time from here.
package httptool

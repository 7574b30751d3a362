// Package waterfall draws how a turn went, from the events of its journal: in a terminal (Text) and as a picture (SVG).
//
//	[]wire.Event ──► lay ──► chart: calls, their attempts, what was said ──► Text, SVG
//
// The journal is what an executor says happened, and in it are words of tools and of models: nothing of it is trusted.
// Events may be missing, out of order, twice there, or lie about the time; then the drawing shows less, or shows what
// they say, and that is all. Texts are shown as one line without what a terminal or a browser would act on.
package waterfall

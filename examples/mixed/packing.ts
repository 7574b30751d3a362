import { defineTool } from "toolbus";
import { z } from "zod";

export const packing = defineTool(
  { name: "packing", description: "Says what to pack.", input: z.object({ sky: z.string(), notes: z.string() }), effect: "read" },
  ({ sky, notes }) => [sky === "snow" ? "boots" : "sandals", ...notes.trim().split("\n")],
);

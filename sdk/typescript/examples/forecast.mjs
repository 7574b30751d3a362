// npx toolbus run examples/forecast.mjs

import { defineTool } from "toolbus";
import { z } from "zod";

export const forecast = defineTool(
  { name: "forecast", description: "The weather in a city.", input: z.object({ city: z.string() }), effect: "read" },
  async ({ city }) => ({ city, degrees: 21 }),
);

"""Features of candidates, derived from schedules whose factors need not be known."""

from loopwright.cost.features.extract import FEATURE_TYPES, Extractor, FeatureRows

__all__ = ["FEATURE_TYPES", "Extractor", "FeatureRows"]
